//! Values counted one by one, for whoever reads them a piece at a time.

use ::analysis::Histogram;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::errors;

#[pyclass(module = "tailscope._engine")]
#[derive(Default)]
pub struct Distribution(Histogram);

#[pymethods]
impl Distribution {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn record(&mut self, values_ns: PyReadonlyArray1<'_, u64>) -> PyResult<()> {
        self.0.record_all(values_ns.as_slice()?);
        Ok(())
    }

    fn record_many(
        &mut self,
        values_ns: PyReadonlyArray1<'_, u64>,
        counts: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<()> {
        let (values, counts) = (values_ns.as_slice()?, counts.as_slice()?);
        if values.len() != counts.len() {
            return Err(errors::argument(
                format!("counts: got {}, expected {}", counts.len(), values.len()),
                "counts",
            ));
        }
        values.iter().zip(counts).for_each(|(&ns, &count)| self.0.record_many(ns, count));
        Ok(())
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    fn at_ranks(&self, ranks: Vec<u64>) -> PyResult<Vec<u64>> {
        let count = self.0.count();
        if let Some(wrong) = ranks.iter().find(|rank| !(1..=count).contains(*rank)) {
            return Err(errors::argument(
                format!("rank: got {wrong}, expected 1 to {count}"),
                "rank",
            ));
        }
        if !ranks.is_sorted() {
            return Err(errors::argument("ranks: expected ascending ones", "ranks-order"));
        }
        Ok(self.0.values_at(&ranks))
    }

    fn above(&self, limit_ns: u64) -> u64 {
        let mut above = 0;
        self.0.for_each(|value, count| above += if value > limit_ns { count } else { 0 });
        above
    }
}
