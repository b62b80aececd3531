//! A naive encoder of pickles of protocol 5. It writes all opcodes first and then divides them into
//! frames.

/// A Python value. Strings and tuples with the same number are one object.
#[derive(Clone, Debug)]
pub enum Value {
    /// `None`.
    None,
    /// A number.
    Int(i64),
    /// A byte string.
    Bytes(Option<usize>, Vec<u8>),
    /// A string.
    Text(Option<usize>, String),
    /// A tuple.
    Tuple(Option<usize>, Vec<Value>),
}

/// Bytes that no frame boundary divides.
struct Piece {
    bytes: Vec<u8>,
    /// Whether a value starts here. A frame that has reached the target length ends before it.
    begins_value: bool,
    /// Whether the bytes are outside of frames.
    is_unframed: bool,
}

const FRAME_TARGET: usize = 1 << 16;

/// Returns `pickle.dumps(value, protocol=5)`.
pub fn pickled(value: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.value(value);
    writer.more(vec![b'.']);
    framed(&writer.pieces)
}

#[derive(Default)]
struct Writer {
    pieces: Vec<Piece>,
    memo: Vec<Option<usize>>,
}

impl Writer {
    fn value(&mut self, value: &Value) {
        let begin = self.pieces.len();
        match value {
            Value::None => self.more(vec![b'N']),
            Value::Int(number) => self.more(integer(*number)),
            Value::Bytes(object, bytes) => self.string(*object, bytes, [b'C', b'B']),
            Value::Text(object, text) => self.string(*object, text.as_bytes(), [0x8c, b'X']),
            Value::Tuple(_, items) if items.is_empty() => self.more(vec![b')']),
            Value::Tuple(object, items) => self.tuple(*object, items),
        }
        self.pieces[begin].begins_value = true;
    }

    fn tuple(&mut self, object: Option<usize>, items: &[Value]) {
        if self.write_if_in_memo(object) {
            return;
        }
        // Longer tuples start with a mark. For the others, an empty piece marks the position where
        // they start.
        self.more(if items.len() > 3 { vec![b'('] } else { vec![] });
        items.iter().for_each(|item| self.value(item));
        self.more(vec![[b't', 0x85, 0x86, 0x87][if items.len() > 3 { 0 } else { items.len() }]]);
        self.memoize(object);
    }

    fn string(&mut self, object: Option<usize>, bytes: &[u8], [short, long]: [u8; 2]) {
        if self.write_if_in_memo(object) {
            return;
        }
        let mut piece = match u8::try_from(bytes.len()) {
            Ok(len) => vec![short, len],
            Err(_) => [&[long][..], &(bytes.len() as u32).to_le_bytes()].concat(),
        };
        piece.extend(bytes);
        let is_unframed = bytes.len() >= FRAME_TARGET;
        self.pieces.push(Piece { bytes: piece, begins_value: false, is_unframed });
        self.memoize(object);
    }

    fn write_if_in_memo(&mut self, object: Option<usize>) -> bool {
        let known = |&known: &Option<usize>| object.is_some() && known == object;
        let Some(index) = self.memo.iter().position(known) else { return false };
        self.more(match u8::try_from(index) {
            Ok(index) => vec![b'h', index],
            Err(_) => [&b"j"[..], &(index as u32).to_le_bytes()].concat(),
        });
        true
    }

    fn memoize(&mut self, object: Option<usize>) {
        self.memo.push(object);
        self.more(vec![0x94]);
    }

    fn more(&mut self, bytes: Vec<u8>) {
        self.pieces.push(Piece { bytes, begins_value: false, is_unframed: false });
    }
}

fn integer(number: i64) -> Vec<u8> {
    if let Ok(small) = u8::try_from(number) {
        return vec![b'K', small];
    }
    if let Ok(medium) = u16::try_from(number) {
        return [&b"M"[..], &medium.to_le_bytes()].concat();
    }
    if let Ok(large) = i32::try_from(number) {
        return [&b"J"[..], &large.to_le_bytes()].concat();
    }
    let fits = |len: &usize| number << (64 - 8 * len) >> (64 - 8 * len) == number;
    let len = (5..8).find(fits).unwrap_or(8);
    [&[0x8a, len as u8][..], &number.to_le_bytes()[..len]].concat()
}

fn framed(pieces: &[Piece]) -> Vec<u8> {
    let mut pickle = vec![0x80, 5];
    let mut frame: Vec<u8> = Vec::new();
    for piece in pieces {
        if piece.is_unframed || piece.begins_value && frame.len() >= FRAME_TARGET {
            close(&mut pickle, &mut frame);
        }
        if piece.is_unframed { &mut pickle } else { &mut frame }.extend(&piece.bytes);
    }
    close(&mut pickle, &mut frame);
    pickle
}

fn close(pickle: &mut Vec<u8>, frame: &mut Vec<u8>) {
    if frame.len() >= 4 {
        pickle.push(0x95);
        pickle.extend((frame.len() as u64).to_le_bytes());
    }
    pickle.append(frame);
}
