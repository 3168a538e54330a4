//! What is written is what is read, whatever differs in a column, and whatever is passed over.

use std::io;
use std::sync::Arc;

use proptest::prelude::*;
use tables::{
    Batches, Cells, Column, Encoding, Field, Kind, NewCells, NewColumn, Source, Table, Writer,
};

#[derive(Clone)]
struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, at: u64, size: usize) -> io::Result<Vec<u8>> {
        let from = usize::try_from(at).map_or(self.0.len(), |at| at.min(self.0.len()));
        Ok(self.0[from..self.0.len().min(from + size)].to_vec())
    }
}

/// Groups of rows: of each row the place of its text, its number, and whether both are missing.
type Groups = Vec<Vec<(u32, u64, bool)>>;

fn names() -> Vec<String> {
    (0..300).map(|at| format!("10.0.{}.{}:443", at / 7, at % 7)).collect()
}

fn written(groups: &Groups, is_nullable: bool) -> Bytes {
    let field = |name: &str, kind| Field {
        name: name.into(),
        kind,
        is_nullable,
        encoding: Encoding::Dictionary,
    };
    let fields = vec![field("flow", Kind::Text), field("size", Kind::UInt64)];
    let (mut writer, names) = (Writer::new(fields).unwrap(), names());
    let mut file = Vec::new();
    for group in groups {
        let texts: Vec<_> = group.iter().map(|row| row.0).collect();
        let numbers: Vec<_> = group.iter().map(|row| row.1).collect();
        let gone: Vec<_> = group.iter().map(|row| row.2).collect();
        let missing = is_nullable.then_some(&gone[..]);
        let columns = [
            NewColumn { cells: NewCells::Text(&texts, &names), missing },
            NewColumn { cells: NewCells::UInt64(&numbers), missing },
        ];
        file.extend(writer.write(group.len(), &columns).unwrap());
    }
    file.extend(writer.finish().unwrap());
    Bytes(file)
}

fn batches(file: Bytes, rows: usize) -> Batches<Bytes> {
    Arc::new(Table::open(file).unwrap()).batches(&[0, 1], rows).unwrap()
}

fn all(mut batches: Batches<Bytes>) -> Vec<Vec<Column>> {
    std::iter::from_fn(|| batches.next().unwrap()).collect()
}

/// Rows of a batch; without what is missing.
fn rows_of(batch: &[Column]) -> Vec<Option<(String, u64)>> {
    let [flow, size] = batch else { panic!("two columns") };
    assert_eq!(flow.missing, size.missing);
    let (Cells::Text(places, names), Cells::UInt64(sizes)) = (&flow.cells, &size.cells) else {
        panic!("{batch:?}")
    };
    let gone = |at: usize| flow.missing.as_ref().is_some_and(|missing| missing[at]);
    let cell = |at: usize| (names[places[at] as usize].clone(), sizes[at]);
    (0..sizes.len()).map(|at| (!gone(at)).then(|| cell(at))).collect()
}

fn groups() -> impl Strategy<Value = Groups> {
    // Long runs of the same, short ones, and none; few numbers that differ, and too many.
    let run = (1..2_000usize, 0..300u32, prop_oneof![Just(64u64), Just(1500), any::<u64>()]);
    let runs = prop::collection::vec((run, prop::bool::weighted(0.2)), 1..12);
    let others = prop::collection::vec((0..300u32, any::<u64>(), any::<bool>()), 1..9_000);
    let of_runs = runs.prop_map(|runs| {
        let rows = |((count, place, number), gone)| vec![(place, number, gone); count];
        runs.into_iter().flat_map(rows).collect::<Vec<_>>()
    });
    prop::collection::vec(prop_oneof![of_runs, others], 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_written_is_read(groups in groups(), is_nullable: bool) {
        let names = names();
        let expected = groups.iter().flatten().map(|&(place, number, gone)| {
            (!(gone && is_nullable)).then(|| (names[place as usize].clone(), number))
        });
        let read = all(batches(written(&groups, is_nullable), 1_000));
        let read: Vec<_> = read.iter().flat_map(|batch| rows_of(batch)).collect();
        prop_assert_eq!(read, expected.collect::<Vec<_>>());
    }

    #[test]
    fn what_is_passed_over_changes_nothing_behind_it(
        groups in groups(), skips in prop::collection::vec(0..5usize, 1..20),
    ) {
        let file = written(&groups, true);
        let whole = all(batches(file.clone(), 500));
        prop_assert_eq!(Table::open(file.clone()).unwrap().batch_count(500), whole.len());
        let (mut some, mut at) = (batches(file, 500), 0);
        for skip in skips {
            some.skip(skip).unwrap();
            at += skip;
            let expected = whole.get(at).map(|batch| rows_of(batch));
            prop_assert_eq!(some.next().unwrap().map(|batch| rows_of(&batch)), expected);
            at += 1;
        }
    }
}
