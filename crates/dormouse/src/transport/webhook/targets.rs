//! Where a webhook may go: an address that somebody else chose must not reach what only this machine can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses may be posted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Targets {
    /// Those of the public internet, over TLS: not this machine, not a private network, not a cloud's metadata.
    #[default]
    Public,
    /// Any, and without TLS too: for receivers of your own.
    Any,
}

impl Targets {
    pub(super) fn allow(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Public => is_public(address),
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Carriers' own, protocols' own, and benchmarks.
        || (a == 100 && (64..128).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

/// Only public addresses, and none that stands for a version 4 address that is not public.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Mapped addresses, and those of translators.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo hides its address; documentation leads nowhere.
        [0x2001, 0 | 0xdb8, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let inside = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "198.18.0.1",
            "192.0.0.8",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "::7f00:1",
        ];
        for address in inside {
            assert!(!is_public(address.parse().expect("an address")), "{address}");
        }
        for address in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"] {
            assert!(is_public(address.parse().expect("an address")), "{address}");
        }
    }
}
