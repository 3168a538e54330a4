//! Longest-prefix match by DPDK's two libraries, `rte_lpm` and `rte_fib`, for both families.

use crate::error::{Error, last_reason, reason};
use std::ffi::{CString, c_void};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;

/// What is found where no route is.
pub const NO_HOP: u32 = dpdk_sys::TS_NO_HOP;

/// Routes of IPv4.
pub trait Routes4: Sized + Send + Sync {
    /// A table for at most `routes` routes.
    ///
    /// # Errors
    /// When there is no memory, or the name is taken.
    fn new(name: &str, routes: u32, socket: i32) -> Result<Self, Error>;

    /// Adds a route of `bits` bits, or changes it. The default route, 0 bits, is two of one bit.
    ///
    /// # Errors
    /// When the table is full.
    fn add(&mut self, address: Ipv4Addr, bits: u8, hop: u32) -> Result<(), Error>;

    /// The hop for each of at most 512 addresses, in host order; [`NO_HOP`] where there is none.
    fn find(&self, addresses: &[u32], hops: &mut [u32]);
}

/// Routes of IPv6.
pub trait Routes6: Sized + Send + Sync {
    /// A table for at most `routes` routes.
    ///
    /// # Errors
    /// When there is no memory, or the name is taken.
    fn new(name: &str, routes: u32, socket: i32) -> Result<Self, Error>;

    /// Adds a route of `bits` bits, or changes it. The default route, 0 bits, is two of one bit.
    ///
    /// # Errors
    /// When the table is full.
    fn add(&mut self, address: Ipv6Addr, bits: u8, hop: u32) -> Result<(), Error>;

    /// The hop for each of at most 512 addresses; [`NO_HOP`] where there is none.
    fn find(&self, addresses: &[[u8; 16]], hops: &mut [u32]);
}

macro_rules! table {
    ($(#[$doc:meta])* $table:ident: $routes:ident, $family:ty, $key:ty, $create:ident, $add:ident,
     $find:ident, $free:ident, $argument:expr, $halves:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $table(NonNull<c_void>);

        // SAFETY: looking up only reads, and adding wants the table for itself.
        unsafe impl Send for $table {}
        // SAFETY: as above.
        unsafe impl Sync for $table {}

        impl $routes for $table {
            fn new(name: &str, routes: u32, socket: i32) -> Result<Self, Error> {
                let owned = CString::new(name).map_err(|_| Error::Text { got: name.into() })?;
                // SAFETY: the name is copied.
                let table = unsafe { dpdk_sys::$create(owned.as_ptr(), routes, socket) };
                NonNull::new(table)
                    .map(Self)
                    .ok_or_else(|| Error::Routes { routes, reason: last_reason() })
            }

            fn add(&mut self, address: $family, bits: u8, hop: u32) -> Result<(), Error> {
                assert!(hop < NO_HOP && u32::from(bits) <= <$family>::BITS, "a route that can be");
                let all = [address];
                let (starts, bits): (&[$family], u8) = if bits == 0 { (&$halves, 1) } else { (&all, bits) };
                for start in starts {
                    let argument: fn(&$family) -> _ = $argument;
                    // SAFETY: a table of this kind; an IPv6 address is 16 bytes that are only read.
                    let code = unsafe { dpdk_sys::$add(self.0.as_ptr(), argument(start), bits, hop) };
                    if code < 0 {
                        return Err(Error::Routes { routes: hop, reason: reason(code) });
                    }
                }
                Ok(())
            }

            #[inline]
            fn find(&self, addresses: &[$key], hops: &mut [u32]) {
                let count = addresses.len();
                assert!(count <= 512 && count <= hops.len(), "a hop for each address of a burst");
                // SAFETY: `count` addresses are read, and as many hops written.
                unsafe {
                    let (from, to) = (addresses.as_ptr().cast(), hops.as_mut_ptr());
                    dpdk_sys::$find(self.0.as_ptr(), from, to, count as u32);
                }
            }
        }

        impl Drop for $table {
            fn drop(&mut self) {
                // SAFETY: a table of this kind, which nobody uses any more.
                unsafe { dpdk_sys::$free(self.0.as_ptr()) };
            }
        }
    };
}

const HALVES4: [Ipv4Addr; 2] = [Ipv4Addr::new(0, 0, 0, 0), Ipv4Addr::new(128, 0, 0, 0)];
const HALVES6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0)];

table!(
    /// `rte_lpm`: 24 bits at once, then 8.
    Lpm4: Routes4, Ipv4Addr, u32, ts_lpm4_create, ts_lpm4_add, ts_lpm4_find, ts_lpm4_free,
    |address| address.to_bits(), HALVES4
);
table!(
    /// `rte_fib`, DIR-24-8.
    Fib4: Routes4, Ipv4Addr, u32, ts_fib4_create, ts_fib4_add, ts_fib4_find, ts_fib4_free,
    |address| address.to_bits(), HALVES4
);
table!(
    /// `rte_lpm6`: 24 bits at once, then 8 at a time.
    Lpm6: Routes6, Ipv6Addr, [u8; 16], ts_lpm6_create, ts_lpm6_add, ts_lpm6_find, ts_lpm6_free,
    |address| std::ptr::from_ref(address).cast::<u8>(), HALVES6
);
table!(
    /// `rte_fib6`, a trie.
    Fib6: Routes6, Ipv6Addr, [u8; 16], ts_fib6_create, ts_fib6_add, ts_fib6_find, ts_fib6_free,
    |address| std::ptr::from_ref(address).cast::<u8>(), HALVES6
);
