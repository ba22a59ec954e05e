//! What a run costs: time, CPU and memory of this process, and what the server tells of its own.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Figures that only grow, where the server tells them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counters {
    /// CPU time of the server's processes, where it runs on this machine.
    pub(super) cpu: Option<Duration>,
    /// Bytes of WAL or redo log, of the whole server.
    pub(super) log_bytes: Option<u64>,
    /// Statements, of this run alone.
    pub(super) statements: Option<u64>,
    /// Transactions, of the whole database.
    pub(super) transactions: Option<u64>,
    /// Row versions that are dead, from updates and deletes.
    pub(super) dead_rows: Option<u64>,
}

impl Counters {
    /// What was added since.
    pub(super) fn since(&self, before: &Self) -> Self {
        fn added<T: std::ops::Sub<Output = T> + PartialOrd + Copy>(
            now: Option<T>,
            then: Option<T>,
        ) -> Option<T> {
            let (now, then) = (now?, then?);
            (now >= then).then(|| now - then)
        }
        Self {
            cpu: added(self.cpu, before.cpu),
            log_bytes: added(self.log_bytes, before.log_bytes),
            statements: added(self.statements, before.statements),
            transactions: added(self.transactions, before.transactions),
            dead_rows: added(self.dead_rows, before.dead_rows),
        }
    }
}

/// This process from the beginning of a run on.
pub(super) struct Gauge {
    begun: Instant,
    cpu: Duration,
}

/// What a run took of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) time: Duration,
    pub(super) cpu: Duration,
    /// The most memory since the run began; where the system tells.
    pub(super) peak_rss: Option<u64>,
}

impl Gauge {
    pub(super) fn start() -> Self {
        // From here on, the kernel notes the peak anew.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self { cpu: process_cpu(), begun: Instant::now() }
    }

    pub(super) fn stop(&self) -> Taken {
        let time = self.begun.elapsed();
        Taken { time, cpu: process_cpu().saturating_sub(self.cpu), peak_rss: peak_rss() }
    }
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn peak_rss() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// CPU time of a process of this machine and of all its children, if its command line has this name.
pub(super) fn cpu_of_family(parent: u32, name: &str) -> Option<Duration> {
    // Not its short name, which is that of a loader where the program was started by one.
    let command = fs::read(format!("/proc/{parent}/cmdline")).ok()?;
    if !String::from_utf8_lossy(&command).contains(name) {
        return None;
    }
    let stat = Stat::of(parent)?;
    let processes = fs::read_dir("/proc").ok()?;
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children = numbers.filter_map(Stat::of).filter(|child| child.parent == parent);
    let ticks =
        stat.own_ticks + stat.ticks_of_ended_children + children.map(|child| child.own_ticks).sum::<u64>();
    Some(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()))
}

/// The process that started another one.
pub(super) fn parent_of(process: u32) -> Option<u32> {
    Stat::of(process).map(|stat| stat.parent)
}

/// What the kernel tells of a process.
struct Stat {
    parent: u32,
    own_ticks: u64,
    ticks_of_ended_children: u64,
}

impl Stat {
    fn of(process: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// The name stands in parentheses and may hold anything.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            own_ticks: number(11)? + number(12)?,
            ticks_of_ended_children: number(13)? + number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processs_figures_are_read_whatever_its_name() {
        let text = "12 (a ) b) S 7 1 1 0 -1 4194304 100 200 0 0 30 4 500 60 20 0 1 0 99 1000 10";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.own_ticks, stat.ticks_of_ended_children), (7, 34, 560));
        assert!(Stat::parse("nothing").is_none());
    }

    #[test]
    fn this_process_has_a_family() {
        let parent = parent_of(std::process::id()).unwrap();
        assert!(cpu_of_family(parent, "").is_some());
        assert!(cpu_of_family(parent, "no such name").is_none());
    }

    #[test]
    fn counters_that_went_back_say_nothing() {
        let now = Counters { log_bytes: Some(5), dead_rows: Some(9), ..Counters::default() };
        let then = Counters { log_bytes: Some(7), dead_rows: Some(2), ..Counters::default() };
        assert_eq!(now.since(&then), Counters { dead_rows: Some(7), ..Counters::default() });
    }
}
