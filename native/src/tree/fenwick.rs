//! Sums over values that change: any prefix, and the place where a sum is reached, in logarithmic time.

/// Sums over the groups in order.
#[derive(Default)]
pub struct Fenwick(Vec<u64>);

impl Fenwick {
    pub fn build(values: impl Iterator<Item = u64>) -> Self {
        let mut sums: Vec<u64> = values.collect();
        for at in 0..sums.len() {
            let parent = at | (at + 1);
            if parent < sums.len() {
                sums[parent] += sums[at];
            }
        }
        Self(sums)
    }

    pub fn add(&mut self, mut at: usize, difference: i64) {
        while at < self.0.len() {
            self.0[at] = self.0[at].wrapping_add_signed(difference);
            at |= at + 1;
        }
    }

    /// The sum of the first `count` values.
    pub fn prefix(&self, mut count: usize) -> u64 {
        let mut sum = 0;
        while count > 0 {
            sum += self.0[count - 1];
            count &= count - 1;
        }
        sum
    }

    /// The value in which the running sum first exceeds `target`, and the sum before it.
    pub fn find(&self, mut target: u64) -> (usize, u64) {
        let mut at = 0;
        let mut before = 0;
        let mut step = self.0.len().next_power_of_two();
        while step > 0 {
            let next = at + step;
            if next <= self.0.len() && self.0[next - 1] <= target {
                target -= self.0[next - 1];
                before += self.0[next - 1];
                at = next;
            }
            step >>= 1;
        }
        (at, before)
    }
}
