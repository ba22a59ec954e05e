//! Which key of the file stands for which option.

/// A key of the file, with its table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// The table in which it stands.
    pub(crate) table: &'static str,
    /// Its name there.
    pub(crate) name: &'static str,
    /// The id of the option.
    pub(crate) option: &'static str,
}

const fn key(table: &'static str, name: &'static str, option: &'static str) -> Key {
    Key { table, name, option }
}

const fn relay(name: &'static str) -> Key {
    key("relay", name, name)
}

/// All of them, in the order in which they are printed.
pub(crate) const KEYS: &[Key] = &[
    key("database", "url", "database_url"),
    key("database", "url_file", "database_url_file"),
    key("database", "table", "table"),
    key("database", "listen_url", "listen_url"),
    key("database", "listen_url_file", "listen_url_file"),
    key("database", "no_listen", "no_listen"),
    relay("name"),
    relay("to"),
    relay("to_file"),
    relay("serve"),
    relay("max_in_flight"),
    relay("window_rows"),
    relay("window_bytes"),
    relay("settle_batch"),
    relay("settle_linger"),
    relay("lease"),
    relay("publish_timeout"),
    relay("drain_timeout"),
    relay("idle_poll"),
    relay("upkeep_every"),
    relay("fail_fast"),
    relay("max_attempts"),
    relay("retry_base"),
    relay("retry_cap"),
    relay("on_dead"),
    relay("retain"),
    relay("keep_idempotency_keys"),
    relay("keep_inbox"),
    key("http", "listen", "http"),
    key("http", "count_every", "count_every"),
    key("log", "format", "log_format"),
    key("log", "level", "log_level"),
];

impl Key {
    /// `table.name`.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.table, self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// Options that are about one call of the command, and no setting.
    const NO_SETTINGS: [&str; 10] =
        ["once", "drain", "for_time", "verbose", "quiet", "help", "version", "config", "set", "route"];

    #[test]
    fn every_option_of_the_relay_has_a_key_and_a_variable() {
        let mut cli = Cli::command();
        cli.build();
        let relay = cli.find_subcommand("relay").unwrap();
        let settings: BTreeSet<_> = relay
            .get_arguments()
            .filter(|option| !NO_SETTINGS.contains(&option.get_id().as_str()))
            .map(|option| option.get_id().as_str())
            .collect();
        let keys: BTreeSet<_> = KEYS.iter().map(|key| key.option).collect();
        assert_eq!(settings, keys);
        for id in settings {
            let option = relay.get_arguments().find(|option| option.get_id() == id).unwrap();
            let long = option.get_long().unwrap();
            let variable = format!("POSTHASTE_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(option.get_env().and_then(|name| name.to_str()), Some(variable.as_str()), "{id}");
        }
    }

    #[test]
    fn no_key_stands_twice() {
        let paths: BTreeSet<_> = KEYS.iter().map(Key::path).collect();
        assert_eq!(paths.len(), KEYS.len());
    }
}
