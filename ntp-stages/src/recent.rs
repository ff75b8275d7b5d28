//! Answers given of late: commands come in few kinds at a time.

/// A few answers by what was asked, in front of a larger table.
#[derive(Debug)]
pub(crate) struct Recent<K, V>(Box<[Option<(K, V)>; PLACES]>);

/// Answers kept.
const PLACES: usize = 64;

impl<K: Copy, V: Copy> Default for Recent<K, V> {
    fn default() -> Self {
        Recent(Box::new([None; PLACES]))
    }
}

impl<K: Copy + PartialEq, V: Copy> Recent<K, V> {
    /// The answer to a question; `place` is any number that tells questions apart fairly well.
    #[inline]
    pub(crate) fn get(&self, place: u64, key: &K) -> Option<V> {
        match &self.0[slot(place)] {
            Some((known, value)) if known == key => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, place: u64, key: K, value: V) {
        self.0[slot(place)] = Some((key, value));
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(None);
    }
}

#[inline]
fn slot(place: u64) -> usize {
    (place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - PLACES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_that_of_the_very_question() {
        let mut recent = Recent::default();
        (0..1000u64).for_each(|key| recent.set(key, key, key * 2));
        let known = |key: &u64| {
            recent
                .get(*key, key)
                .inspect(|value| assert_eq!(*value, key * 2))
        };
        assert!((0..1000).filter_map(|key| known(&key)).count() > PLACES / 2);
        // Another question in the same place.
        assert_eq!(recent.get(999, &77), None);
        recent.clear();
        assert_eq!(recent.get(999, &999), None);
    }
}
