use crate::error::{Error, last_reason};
use crate::lcore::Lcore;
use crate::port::Port;
use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;

/// DPDK's environment: there is one a process, and its thread is the main lcore's.
#[derive(Debug)]
pub struct Eal {
    /// DPDK keeps pointers to its arguments.
    _args: Vec<CString>,
    _not_send: PhantomData<*const ()>,
}

impl Eal {
    /// Starts DPDK with EAL options; `args[0]` is the program's name.
    ///
    /// # Errors
    /// When DPDK refuses; its reasons are on standard error.
    pub fn init(args: &[String]) -> Result<Self, Error> {
        let text =
            |arg: &String| CString::new(arg.as_str()).map_err(|_| Error::Text { got: arg.clone() });
        let owned = args.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<*mut c_char> =
            owned.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
        pointers.push(std::ptr::null_mut());
        // SAFETY: a null-terminated array of strings that outlive the call; DPDK permutes the array
        // and writes to no string.
        let taken = unsafe { dpdk_sys::rte_eal_init(owned.len() as i32, pointers.as_mut_ptr()) };
        if taken < 0 {
            return Err(Error::Eal { args: args.to_vec(), reason: last_reason() });
        }
        Ok(Self { _args: owned, _not_send: PhantomData })
    }

    /// Whether DPDK's memory is of hugepages.
    #[must_use]
    pub fn has_hugepages(&self) -> bool {
        // SAFETY: asks for a number.
        unsafe { dpdk_sys::rte_eal_has_hugepages() == 1 }
    }

    /// The ports, in order of their number.
    #[must_use]
    pub fn ports(&self) -> Vec<Port> {
        let none = dpdk_sys::RTE_MAX_ETHPORTS as u64;
        let next = |from: u16| {
            // SAFETY: asks for a number.
            let found = unsafe { dpdk_sys::rte_eth_find_next_owned_by(from, 0) };
            (found < none).then_some(found as u16)
        };
        std::iter::successors(next(0), |port| next(port + 1)).map(Port::new).collect()
    }

    /// The lcores, the main one first.
    #[must_use]
    pub fn lcores(&self) -> Vec<Lcore> {
        // SAFETY: these ask for numbers.
        let main = unsafe { dpdk_sys::rte_get_main_lcore() };
        let next = |from: u32| {
            // SAFETY: as above.
            let found = unsafe { dpdk_sys::rte_get_next_lcore(from, 1, 0) };
            (found < dpdk_sys::RTE_MAX_LCORE).then_some(found)
        };
        let workers = std::iter::successors(next(u32::MAX), |lcore| next(*lcore));
        std::iter::once(main).chain(workers).map(Lcore).collect()
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        // SAFETY: no port is polled any more: polling borrows from what this outlives.
        unsafe { dpdk_sys::rte_eal_cleanup() };
    }
}

/// The version of DPDK that runs, such as `22.11.11`.
#[must_use]
pub fn running_version() -> String {
    // SAFETY: returns a static string.
    let text = unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy();
    text.trim_start_matches("DPDK ").to_owned()
}
