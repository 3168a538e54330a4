//! Whatever the bytes are, reading ends in columns or in an error, in memory that they do not choose.

use std::io;
use std::sync::Arc;

use proptest::prelude::*;
use tables::{Cells, Encoding, Error, Field, Kind, NewCells, NewColumn, Source, Table, Writer};

const ROWS: usize = 3_000;

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

fn written() -> Vec<u8> {
    let kinds = [
        ("seq", Kind::UInt64, Encoding::Delta),
        ("at", Kind::Int64, Encoding::Dictionary),
        ("watts", Kind::Double, Encoding::Plain),
        ("is", Kind::Bool, Encoding::Plain),
        ("why", Kind::Text, Encoding::Dictionary),
        ("lost", Kind::UInt64, Encoding::Plain),
    ];
    let fields = kinds.map(|(name, kind, encoding)| Field {
        name: name.into(),
        kind,
        is_nullable: kind != Kind::Double,
        encoding,
    });
    let mut writer = Writer::new(fields.to_vec()).unwrap();
    let seq: Vec<u64> = (0..ROWS as u64).map(|at| u64::MAX - at * at).collect();
    let at: Vec<i64> = (0..ROWS as i64).map(|at| -at % 7).collect();
    let watts: Vec<f64> = at.iter().map(|&at| at as f64 / 3.0).collect();
    let is: Vec<bool> = at.iter().map(|&at| at == 0).collect();
    let why: Vec<u32> = (0..ROWS as u32).map(|at| at % 3).collect();
    let names = ["", "größer", "timer"].map(String::from);
    let whole = |cells| NewColumn { cells, missing: None };
    let columns = [
        whole(NewCells::UInt64(&seq)),
        NewColumn { cells: NewCells::Int64(&at), missing: Some(&is) },
        whole(NewCells::Double(&watts)),
        whole(NewCells::Bool(&is)),
        whole(NewCells::Text(&why, &names)),
        whole(NewCells::Missing),
    ];
    let mut file = writer.write(ROWS, &columns).unwrap();
    file.extend(writer.write(ROWS, &columns).unwrap());
    file.extend(writer.finish().unwrap());
    file
}

fn rows_of(file: Vec<u8>) -> Result<usize, Error> {
    let table = Arc::new(Table::open(Bytes(file))?);
    let known: Vec<usize> = (0..table.columns().len())
        .filter(|&at| Kind::named(&table.columns()[at].type_name).is_some())
        .collect();
    let mut batches = table.batches(&known, 1_000)?;
    let mut rows = 0;
    while let Some(columns) = batches.next()? {
        let lengths: Vec<usize> = columns
            .iter()
            .map(|column| match &column.cells {
                Cells::Bool(cells) => cells.len(),
                Cells::Int64(cells) => cells.len(),
                Cells::UInt64(cells) => cells.len(),
                Cells::Double(cells) => cells.len(),
                Cells::Text(places, names) => {
                    assert!(places.iter().all(|&at| (at as usize) < names.len()));
                    places.len()
                }
            })
            .collect();
        assert!(lengths.iter().all(|&length| length == lengths[0] && length <= 1_000));
        rows += lengths.first().copied().unwrap_or(0);
        if rows > 10 * ROWS {
            break; // of what claims many rows, some are enough
        }
    }
    Ok(rows)
}

#[test]
fn what_is_written_is_read() {
    let table = Arc::new(Table::open(Bytes(written())).unwrap());
    assert_eq!(table.rows(), 2 * ROWS as i64);
    let kinds: Vec<_> = table.columns().iter().map(|each| &each.type_name[..]).collect();
    assert_eq!(kinds, ["uint64", "int64", "double", "bool", "string", "uint64"]);
    let mut batches = table.batches(&[0, 1, 4, 5], ROWS - 1).unwrap();
    let first = batches.next().unwrap().unwrap();
    let Cells::UInt64(seq) = &first[0].cells else { panic!() };
    assert_eq!((seq.len(), seq[2]), (ROWS - 1, u64::MAX - 4));
    let (Cells::Int64(at), Some(missing)) = (&first[1].cells, &first[1].missing) else { panic!() };
    assert_eq!((&at[..3], &missing[..3]), (&[0, -1, -2][..], &[true, false, false][..]));
    let Cells::Text(places, names) = &first[2].cells else { panic!() };
    assert_eq!(names[places[4] as usize], "größer");
    assert!(first[3].missing.as_ref().unwrap().iter().all(|&is_missing| is_missing));
    assert_eq!(rows_of(written()).unwrap(), 2 * ROWS);
}

#[test]
fn a_page_that_claims_too_much_is_refused_before_memory_is_taken() {
    let mut file = written();
    // The first page: a dictionary or data page of type i32, then the size that it claims.
    let (kind, rest) = file[4..].split_at(2);
    assert_eq!((kind[0], rest[0]), (0x15, 0x15));
    let end = 7 + rest[1..].iter().position(|byte| byte & 0x80 == 0).unwrap();
    let claim = [0xfe, 0xff, 0xff, 0xff, 0x0f]; // 2^31 - 1
    file.splice(7..=end, claim);
    let error = rows_of(file).unwrap_err().to_string();
    assert!(error.contains("claims 2147483647 bytes"), "{error}");
}

#[test]
fn a_page_whose_claim_is_hidden_is_refused() {
    let mut file = written();
    // The same field with its number written out, which no writer does.
    file.splice(4..5, [0x05, 0x02]);
    let error = rows_of(file).unwrap_err().to_string();
    assert!(error.contains("no header of a page at 4"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_is_an_error_or_other_cells(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        from_end in any::<bool>(),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut file = written();
        for (at, byte) in flips {
            // What the file says of itself is at its end.
            let within = if from_end { file.len().min(1_500) } else { file.len() };
            let place = file.len() - 1 - at.index(within);
            file[place] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        let _ = rows_of(file);
    }
}
