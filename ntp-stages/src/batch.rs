//! Sorts commands into batches that can be taken in together.

use crate::group::{BATCH, Sample};

/// Where commands go and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Interval; `None`: the whole recording.
    pub(crate) interval: Option<u64>,
    /// Number of the group.
    pub(crate) group: u32,
    /// Number of the plan.
    pub(crate) plan: u32,
}

/// Commands of one place.
pub(crate) struct Batch<'a> {
    pub(crate) place: Place,
    pub(crate) samples: Vec<Sample<'a>>,
}

/// Batches being filled: few, since commands come in few kinds at a time.
#[derive(Default)]
pub(crate) struct Batches<'a> {
    open: Vec<Batch<'a>>,
    last: usize,
}

/// Batches filled at once.
const OPEN: usize = 16;

impl<'a> Batches<'a> {
    /// Adds a command; gives back a batch that is to be taken in before more come.
    #[inline]
    pub(crate) fn push(&mut self, place: Place, sample: Sample<'a>) -> Option<Batch<'a>> {
        if self
            .open
            .get(self.last)
            .is_none_or(|batch| batch.place != place)
        {
            match self.open.iter().position(|batch| batch.place == place) {
                Some(found) => self.last = found,
                None => return self.start(place, sample),
            }
        }
        let batch = &mut self.open[self.last];
        batch.samples.push(sample);
        (batch.samples.len() == BATCH).then(|| {
            let samples = std::mem::replace(&mut batch.samples, Vec::with_capacity(BATCH));
            Batch { place, samples }
        })
    }

    /// Starts a batch, in place of the oldest when there are too many.
    fn start(&mut self, place: Place, sample: Sample<'a>) -> Option<Batch<'a>> {
        let oldest = (self.open.len() >= OPEN).then(|| self.open.remove(0));
        let mut samples = Vec::with_capacity(BATCH);
        samples.push(sample);
        self.open.push(Batch { place, samples });
        self.last = self.open.len() - 1;
        oldest
    }

    /// What is left.
    pub(crate) fn rest(self) -> impl Iterator<Item = Batch<'a>> {
        self.open.into_iter()
    }
}
