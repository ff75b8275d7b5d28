//! A long queue, in blocks: what leaves makes room for what comes, at once and
//! while it is still in the cache. In one ring, each place is used again only
//! when all others were, and a ring is up to twice as long as what is in it.

use std::collections::VecDeque;

/// Items of a block.
const BLOCK: usize = 1 << 10;

pub(crate) struct Blocks<T> {
    /// None is empty, and in the first is one item at least that has not left.
    blocks: VecDeque<Vec<T>>,
    /// Items of the first that have left.
    gone: usize,
    len: usize,
    spare: Vec<Vec<T>>,
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Blocks {
            blocks: VecDeque::new(),
            gone: 0,
            len: 0,
            spare: Vec::new(),
        }
    }
}

impl<T> Blocks<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inlined, so that an item is made where it will lie: made elsewhere from
    /// words, and copied at once by larger ones, it would hold up the CPU.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        if self.blocks.back().is_none_or(|last| last.len() == BLOCK) {
            self.begin();
        }
        if let Some(last) = self.blocks.back_mut() {
            last.push(item);
            self.len += 1;
        }
    }

    #[cold]
    fn begin(&mut self) {
        let block = self.spare.pop();
        let block = block.unwrap_or_else(|| Vec::with_capacity(BLOCK));
        self.blocks.push_back(block);
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.blocks.front()?.get(self.gone)
    }

    /// Lets the first item go.
    #[inline]
    pub(crate) fn pop(&mut self) {
        let Some(first) = self.blocks.front_mut() else {
            return;
        };
        self.len -= 1;
        self.gone += 1;
        if self.gone == first.len() {
            first.clear();
            self.gone = 0;
            self.spare.extend(self.blocks.pop_front());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_queue() {
        let (mut blocks, mut queue) = (Blocks::default(), VecDeque::new());
        // Now longer, now shorter, and empty in between.
        for (push, pop) in [(3, 3), (1_024, 1), (5_000, 4_500), (2_000, 5_000), (10, 10)] {
            for item in 0..push {
                blocks.push(item);
                queue.push_back(item);
            }
            for _ in 0..pop {
                assert_eq!(blocks.front(), queue.front());
                blocks.pop();
                queue.pop_front();
                assert_eq!(
                    (blocks.len(), blocks.is_empty()),
                    (queue.len(), queue.is_empty())
                );
            }
        }
        assert!(blocks.spare.len() <= 7);
    }
}
