use crate::burst::{Burst, Mbuf};
use crate::error::{Error, reason};
use crate::pool::Mempool;
use std::ffi::{CStr, c_char};

/// Packets that a driver is given at once: that of memif in DPDK 23.11 does not survive 256.
const AT_ONCE: usize = 255;

/// A port: a network device that DPDK drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(u16);

/// How a port is set up.
#[derive(Clone, Copy, Debug)]
pub struct PortConfig {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Packets that a receive queue holds, which the driver may round.
    pub rx_ring: u16,
    /// Packets that a transmit queue holds, which the driver may round.
    pub tx_ring: u16,
    /// Where received packets are put.
    pub pool: Mempool,
    /// Whether the device shall stamp every packet that arrives.
    pub rx_timestamps: bool,
}

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The device's name: a PCI address, or what the command line calls a virtual one.
    pub name: String,
    /// The driver's name.
    pub driver: String,
    /// The MAC address.
    pub mac: [u8; 6],
    /// The NUMA node; `None` where there is none.
    pub socket: Option<u32>,
    /// Whether the device can stamp every packet that arrives.
    pub rx_timestamps: bool,
    /// The most receive queues.
    pub max_rx_queues: u16,
    /// The most transmit queues.
    pub max_tx_queues: u16,
}

impl Port {
    pub(crate) fn new(id: u16) -> Self {
        Self(id)
    }

    /// Its number.
    #[must_use]
    pub fn id(self) -> u16 {
        self.0
    }

    pub(crate) fn check(self, call: &'static str, code: i32) -> Result<(), Error> {
        if code < 0 {
            return Err(Error::Port { port: self.0, call, reason: reason(code) });
        }
        Ok(())
    }

    /// What it is.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn info(self) -> Result<Info, Error> {
        let info = self.raw_info()?;
        let mut name = [0 as c_char; dpdk_sys::RTE_ETH_NAME_MAX_LEN as usize];
        // SAFETY: has room for the longest name.
        let code = unsafe { dpdk_sys::rte_eth_dev_get_name_by_port(self.0, name.as_mut_ptr()) };
        self.check("asking for its name", code)?;
        let mut mac = dpdk_sys::rte_ether_addr::default();
        // SAFETY: writes to a struct of our own.
        let code = unsafe { dpdk_sys::rte_eth_macaddr_get(self.0, &raw mut mac) };
        self.check("asking for its MAC address", code)?;
        // SAFETY: asks for a number.
        let socket = unsafe { dpdk_sys::rte_eth_dev_socket_id(self.0) };
        // SAFETY: DPDK wrote strings that end.
        let (name, driver) =
            unsafe { (CStr::from_ptr(name.as_ptr()), CStr::from_ptr(info.driver_name)) };
        Ok(Info {
            name: name.to_string_lossy().into_owned(),
            driver: driver.to_string_lossy().into_owned(),
            mac: mac.addr_bytes,
            socket: u32::try_from(socket).ok(),
            rx_timestamps: info.rx_offload_capa & timestamp_offload() != 0,
            max_rx_queues: info.max_rx_queues,
            max_tx_queues: info.max_tx_queues,
        })
    }

    fn raw_info(self) -> Result<dpdk_sys::rte_eth_dev_info, Error> {
        // SAFETY: a struct of numbers and pointers that may be null; DPDK fills it in.
        let (code, info) = unsafe {
            let mut info = std::mem::zeroed::<dpdk_sys::rte_eth_dev_info>();
            (dpdk_sys::rte_eth_dev_info_get(self.0, &raw mut info), info)
        };
        self.check("asking what it is", code)?;
        Ok(info)
    }

    /// Sets it up. What is not to be had of `config` is an error, ring sizes apart.
    ///
    /// # Errors
    /// When the driver refuses a step.
    pub fn configure(self, config: &PortConfig) -> Result<(Vec<RxQueue>, Vec<TxQueue>), Error> {
        let info = self.raw_info()?;
        // SAFETY: all zeros is what DPDK's own examples start from.
        let mut wanted = unsafe { std::mem::zeroed::<dpdk_sys::rte_eth_conf>() };
        if config.rx_timestamps {
            wanted.rxmode.offloads = timestamp_offload();
        }
        // SAFETY: `wanted` is copied.
        let code = unsafe {
            dpdk_sys::rte_eth_dev_configure(
                self.0,
                config.rx_queues,
                config.tx_queues,
                &raw const wanted,
            )
        };
        self.check("configuring it", code)?;
        let (mut rx_ring, mut tx_ring) = (config.rx_ring, config.tx_ring);
        // SAFETY: writes to two numbers of our own.
        let code = unsafe {
            dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.0, &raw mut rx_ring, &raw mut tx_ring)
        };
        self.check("sizing its rings", code)?;
        // SAFETY: asks for a number; -1, which stands for any node, is passed on as DPDK does.
        let socket = unsafe { dpdk_sys::rte_eth_dev_socket_id(self.0) } as u32;
        let mut rx = info.default_rxconf;
        rx.offloads |= wanted.rxmode.offloads;
        for queue in 0..config.rx_queues {
            let pool = config.pool.as_ptr();
            // SAFETY: the configuration is copied; pools live as long as the process.
            let code = unsafe {
                dpdk_sys::rte_eth_rx_queue_setup(
                    self.0,
                    queue,
                    rx_ring,
                    socket,
                    &raw const rx,
                    pool,
                )
            };
            self.check("setting up a receive queue", code)?;
        }
        for queue in 0..config.tx_queues {
            // SAFETY: the driver's own default configuration.
            let code = unsafe {
                dpdk_sys::rte_eth_tx_queue_setup(self.0, queue, tx_ring, socket, std::ptr::null())
            };
            self.check("setting up a transmit queue", code)?;
        }
        let rx = (0..config.rx_queues).map(|queue| RxQueue { port: self.0, queue }).collect();
        let tx = (0..config.tx_queues).map(|queue| TxQueue { port: self.0, queue }).collect();
        Ok((rx, tx))
    }

    /// Starts it, after it was set up. Nothing may poll it meanwhile.
    ///
    /// # Errors
    /// When the driver refuses; a memif client is refused when there is no server.
    pub fn start(self) -> Result<(), Error> {
        // SAFETY: a port that was not set up is refused.
        let code = unsafe { dpdk_sys::rte_eth_dev_start(self.0) };
        self.check("starting it", code)?;
        // Frames for other addresses are wanted. A driver that cannot filter passes them anyway.
        // SAFETY: a started port.
        let _ = unsafe { dpdk_sys::rte_eth_promiscuous_enable(self.0) };
        Ok(())
    }

    /// Stops it. Nothing may poll it meanwhile.
    pub fn stop(self) {
        // SAFETY: one that was not started is refused.
        unsafe { dpdk_sys::rte_eth_dev_stop(self.0) };
    }

    /// Stops and closes it. Its queues, which are gone, receive and send nothing from now on.
    pub fn close(self) {
        // SAFETY: calls on a port that was stopped or never started fail harmlessly. From now on
        // DPDK's own dummy functions stand behind its queues.
        unsafe {
            dpdk_sys::rte_eth_dev_stop(self.0);
            dpdk_sys::rte_eth_dev_close(self.0);
        }
    }

    /// Whether the link is up.
    #[must_use]
    pub fn link_up(self) -> bool {
        // SAFETY: asks the driver.
        unsafe { dpdk_sys::ts_link_up(self.0) == 1 }
    }
}

fn timestamp_offload() -> u64 {
    // SAFETY: a constant.
    unsafe { dpdk_sys::TS_RX_OFFLOAD_TIMESTAMP }
}

/// Where packets arrive. Belongs to one thread at a time: it is neither cloned nor shared.
#[derive(Debug)]
pub struct RxQueue {
    port: u16,
    queue: u16,
}

impl RxQueue {
    /// The port's number.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Appends what has arrived to `burst`, at most `most` packets; says how many.
    #[inline(always)]
    pub fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        let spare = burst.spare();
        let most = most.min(spare.len()) as u16;
        // SAFETY: room for `most` packets; the queue is only ever polled by its owner.
        let count = unsafe {
            dpdk_sys::ts_rx_burst(self.port, self.queue, spare.as_mut_ptr().cast(), most)
        };
        // SAFETY: so many were written.
        unsafe { burst.grow(count.into()) };
        count.into()
    }
}

/// Where packets leave. Belongs to one thread at a time: it is neither cloned nor shared.
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
}

impl TxQueue {
    /// The port's number.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Hands over the first `most` packets of `burst`, as many as the ring takes; says how many. The
    /// others stay in the burst.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Burst, most: usize) -> usize {
        let most = most.min(burst.len());
        let mut count = 0;
        while count < most {
            let chunk = (most - count).min(AT_ONCE);
            let packets = burst.as_mut_slice()[count..].as_mut_ptr().cast();
            // SAFETY: so many packets are there.
            let taken =
                unsafe { dpdk_sys::ts_tx_burst(self.port, self.queue, packets, chunk as u16) };
            count += usize::from(taken);
            if usize::from(taken) < chunk {
                break;
            }
        }
        // SAFETY: the driver owns the first `count` now.
        unsafe { burst.taken(count) };
        count
    }
}

/// Where a device's own arrival times are found in packets.
#[derive(Clone, Copy, Debug)]
pub struct RxTimestamps {
    offset: usize,
    flag: u64,
}

impl RxTimestamps {
    /// Registers the field, once a process. `None` when it cannot be had.
    #[must_use]
    pub fn register() -> Option<Self> {
        let mut offset = -1;
        // SAFETY: writes to a number of our own.
        let flag = unsafe { dpdk_sys::ts_rx_timestamp_flag(&raw mut offset) };
        let offset = usize::try_from(offset).ok()?;
        (flag != 0).then_some(Self { offset, flag })
    }

    /// When the packet arrived, by the device's clock; `None` where it did not say.
    #[inline(always)]
    #[must_use]
    pub fn of(self, packet: &Mbuf) -> Option<u64> {
        (packet.flags() & self.flag != 0).then(|| packet.dynamic_u64(self.offset))
    }
}
