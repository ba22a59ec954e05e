//! Where in the table the rows lie that were read and are not settled yet: a row that is found by its place needs no look
//! into an index. A place is a hint. A row moves when it is written to, and another one may take its place, so a settle
//! proves each row by its id.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// How many places are remembered at least. A relay has fewer records in hand; what it lets go of without settling is
/// forgotten when as many others have come.
const REMEMBERED: usize = 16_384;

/// The page and the number of a row there: PostgreSQL's `tid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place([u8; 6]);

impl<'a> FromSql<'a> for Place {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TID
    }
}

impl ToSql for Place {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TID
    }

    to_sql_checked!();
}

/// Places by position.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Generations>);

/// When the younger one is full, the older one is forgotten.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<i64, Place>,
    old: HashMap<i64, Place>,
}

impl Places {
    /// Remembers where rows lie.
    pub(crate) fn note(&self, places: impl IntoIterator<Item = (i64, Place)>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (position, place) in places {
            if all.young.len() >= REMEMBERED {
                all.old = std::mem::take(&mut all.young);
            }
            all.young.insert(position, place);
        }
    }

    /// Where these rows lie, if that is known of all of them; whatever is known is forgotten.
    pub(crate) fn take(&self, positions: &[i64]) -> Option<Vec<Place>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut take = |position| {
            let old = all.old.remove(position);
            all.young.remove(position).or(old)
        };
        let places: Vec<_> = positions.iter().filter_map(&mut take).collect();
        (places.len() == positions.len()).then_some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u8) -> Place {
        Place([0, 0, 0, 0, 0, n])
    }

    #[test]
    fn a_place_is_remembered_until_it_is_taken() {
        let places = Places::default();
        places.note([(1, place(1)), (2, place(2)), (1, place(3))]);
        assert_eq!(places.take(&[2, 1]), Some(vec![place(2), place(3)]));
        assert_eq!(places.take(&[1]), None);
    }

    #[test]
    fn one_that_is_not_known_leaves_none() {
        let places = Places::default();
        places.note([(1, place(1))]);
        assert_eq!(places.take(&[1, 2]), None);
    }

    #[test]
    fn those_that_are_never_taken_are_forgotten() {
        let places = Places::default();
        let many = i64::try_from(REMEMBERED * 5 / 2).unwrap();
        places.note((0..many).map(|position| (position, place(0))));
        let all = places.0.lock().unwrap();
        assert!(all.young.len() + all.old.len() <= 2 * REMEMBERED);
        drop(all);
        assert_eq!(places.take(&[0]), None);
        let last_in_hand: Vec<_> = (many - i64::try_from(REMEMBERED).unwrap()..many).collect();
        assert!(places.take(&last_in_hand).is_some());
    }
}
