//! Hosts as network namespaces: each has one cable to a bridge in a namespace of its own, and nothing of the machine's
//! network is changed or reached.

use std::process::Command;

use crate::{Result, run};

/// Where the bridge is: the database and the monitoring run here.
const HUB: &str = "hub";
/// A network that exists in these namespaces alone.
const HUB_ADDRESS: &str = "10.77.0.1";
const HOST_NUMBER_FIRST: usize = 11;

/// Removed when dropped.
pub(super) struct Net {
    names: Vec<String>,
    id: u32,
}

impl Net {
    pub(super) fn lay(hosts: &[&str]) -> Result<Net> {
        let id = std::process::id();
        // Listed first: what was made before a failure is removed too.
        let names = [HUB].iter().chain(hosts).map(|name| namespace(id, name)).collect();
        let net = Net { names, id };
        let hub = namespace(id, HUB);
        for name in &net.names {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        ip(&["-n", &hub, "link", "add", "name", "bridge", "type", "bridge"])?;
        ip(&["-n", &hub, "address", "add", &format!("{HUB_ADDRESS}/24"), "dev", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "bridge", "up"])?;
        for (number, host) in hosts.iter().enumerate() {
            let name = namespace(id, host);
            let cable = ["type", "veth", "peer", "name", "eth0", "netns", &name];
            ip(&[&["-n", &hub, "link", "add", "name", host][..], &cable].concat())?;
            ip(&["-n", &hub, "link", "set", "dev", host, "master", "bridge", "up"])?;
            ip(&["-n", &name, "address", "add", &format!("{}/24", address(number)), "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(net)
    }

    /// What other processes know this network by.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// A command that runs beside the bridge.
    pub(super) fn at_the_hub(&self, program: &std::path::Path) -> Command {
        inside(self.id, HUB, program)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            // The cables go with their ends. What was never made cannot be removed.
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// The address of the database and the monitoring.
pub(super) fn hub() -> &'static str {
    HUB_ADDRESS
}

/// The address of a host by its place in the list.
pub(super) fn address(number: usize) -> String {
    format!("10.77.0.{}", HOST_NUMBER_FIRST + number)
}

/// A command that runs on a host.
pub(super) fn on_host(id: u32, host: &str, program: &std::path::Path) -> Command {
    inside(id, host, program)
}

/// Cuts a host's cable, or mends it.
pub(super) fn cable(id: u32, host: &str, state: Cable) -> Result {
    let word = match state {
        Cable::Cut => "down",
        Cable::Whole => "up",
    };
    ip(&["-n", &namespace(id, HUB), "link", "set", "dev", host, word])
}

pub(super) enum Cable {
    Cut,
    Whole,
}

fn namespace(id: u32, name: &str) -> String {
    format!("dormouse-{id}-{name}")
}

/// `nsenter` becomes the program, so that a signal to the process reaches it.
fn inside(id: u32, name: &str, program: &std::path::Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", namespace(id, name))).arg("--").arg(program);
    command
}

fn ip(args: &[&str]) -> Result {
    run(Command::new("ip").args(args))
}
