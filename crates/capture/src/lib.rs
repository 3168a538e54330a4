//! Reading and writing of pcap and pcapng captures with integer timestamps.
