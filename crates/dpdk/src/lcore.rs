use crate::error::{Error, reason};
use std::ffi::{c_int, c_void};

/// One of DPDK's threads, each pinned to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcore(pub u32);

impl Lcore {
    /// The CPU that it is pinned to.
    #[must_use]
    pub fn cpu(self) -> Option<u32> {
        // SAFETY: asks for a number; -1 stands for more CPUs than one.
        let cpu = unsafe { dpdk_sys::rte_lcore_to_cpu_id(self.0 as c_int) };
        u32::try_from(cpu).ok()
    }

    /// The NUMA node of its memory.
    #[must_use]
    pub fn socket(self) -> i32 {
        // SAFETY: asks for a number.
        unsafe { dpdk_sys::rte_lcore_to_socket_id(self.0) as i32 }
    }
}

type Job<'a, R> = Box<dyn FnOnce() -> R + Send + 'a>;

struct Launch<'a, R> {
    job: Option<Job<'a, R>>,
    result: Option<std::thread::Result<R>>,
}

extern "C" fn entry<R>(launch: *mut c_void) -> c_int {
    // SAFETY: `run_on` passes a launch that it leaves alone until the lcore has ended.
    let launch = unsafe { &mut *launch.cast::<Launch<'_, R>>() };
    let job = launch.job.take().expect("a job is run once");
    launch.result = Some(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
    0
}

/// Runs each job on its lcore, the first on the thread that calls, and waits for all of them.
///
/// # Errors
/// When an lcore cannot be started; those that were are waited for.
///
/// # Panics
/// When a job does.
pub fn run_on<R: Send>(jobs: Vec<(Lcore, Job<'_, R>)>) -> Result<Vec<R>, Error> {
    let lcores: Vec<Lcore> = jobs.iter().map(|(lcore, _)| *lcore).collect();
    let mut launches: Vec<_> =
        jobs.into_iter().map(|(_, job)| Launch { job: Some(job), result: None }).collect();
    let Some((own, workers)) = launches.split_first_mut() else { return Ok(Vec::new()) };
    let mut refused = None;
    let mut started = Vec::new();
    for (launch, lcore) in workers.iter_mut().zip(&lcores[1..]) {
        let argument = std::ptr::from_mut(launch).cast();
        // SAFETY: `launches` stays in place and untouched until the lcore was waited for, below.
        match unsafe { dpdk_sys::rte_eal_remote_launch(Some(entry::<R>), argument, lcore.0) } {
            0 => started.push(lcore.0),
            code => refused = Some(Error::Lcore { lcore: lcore.0, reason: reason(code) }),
        }
    }
    if refused.is_none() {
        entry::<R>(std::ptr::from_mut(own).cast());
    }
    for lcore in started {
        // SAFETY: waits for what was started.
        unsafe { dpdk_sys::rte_eal_wait_lcore(lcore) };
    }
    if let Some(error) = refused {
        return Err(error);
    }
    let result = |launch: Launch<'_, R>| match launch.result.expect("every job has ended") {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    Ok(launches.into_iter().map(result).collect())
}
