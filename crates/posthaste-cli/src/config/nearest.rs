//! The name that somebody may have meant.

/// The known name that is nearest to one that is not known. In `table.name`, the name says more than the table.
pub(crate) fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (table, name) = split(unknown);
    known.into_iter().min_by_key(|known| {
        let (known_table, known_name) = split(known);
        let distance = strsim::damerau_levenshtein;
        (2 * distance(name, known_name) + usize::from(table != known_table), distance(table, known_table))
    })
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["lease", "retain", "max_attempts"];
        assert_eq!(nearest("leese", known), Some("lease"));
        assert_eq!(nearest("max_atempts", known), Some("max_attempts"));
        assert_eq!(nearest("lease", ["relay.to", "relay.lease"]), Some("relay.lease"));
        assert_eq!(nearest("relya.name", ["http.name", "relay.name"]), Some("relay.name"));
        assert_eq!(nearest("x", []), None);
    }
}
