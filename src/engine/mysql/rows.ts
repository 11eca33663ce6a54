import driver, { type FieldPacket } from "mysql2";

/** A message of the driver; `offset` is its next byte. */
interface Packet {
  readonly buffer: Buffer;
  offset: number;
  readInt8(): number;
  readSInt8(): number;
  readInt16(): number;
  readSInt16(): number;
  readInt32(): number;
  readSInt32(): number;
  readDouble(): number;
  readLengthCodedString(encoding: string): string;
  readDateTimeString(decimals: number, separator: null, columnType: number): string;
}

const { Types } = driver;

/** Not null. 64-bit integers, decimals and times are text. */
export type Raw = string | number | Buffer | object;

export type RawRow = readonly (Raw | null)[];

type ReadValue = (packet: Packet) => Raw;

/** Of a column's flags. */
const UNSIGNED = 32;
/** The character set of bytes. */
const BINARY = 63;
/** From here on, a half of 64 bits makes a number inexact. */
const INEXACT = 2 ** 21;

/**
 * Reads rows of the usual types in place of the driver, which makes a function for each value and
 * an object for each integer of 64 bits. The values are the same. Returns undefined if a column has
 * another type.
 */
export function rowParser(fields: readonly FieldPacket[]) {
  const readers = fields.map(valueReader);
  if (!readers.every((read) => read !== undefined)) return undefined;
  const nullBytes = (fields.length + 9) >> 3;
  return class {
    next(packet: Packet): RawRow {
      const { buffer, offset } = packet;
      packet.offset = offset + 1 + nullBytes;
      // A list that grows has room for 17 values.
      const row = new Array<Raw | null>(readers.length);
      // The first two bits belong to no column (MySQL, "Binary Protocol Resultset Row").
      for (const [at, read] of readers.entries()) {
        const bit = at + 2;
        const isNull = ((buffer[offset + 1 + (bit >> 3)] ?? 0) >> (bit & 7)) & 1;
        row[at] = isNull === 1 ? null : read(packet);
      }
      return row;
    }
  };
}

function valueReader(field: FieldPacket): ReadValue | undefined {
  const { columnType, flags, encoding, characterSet, decimals } = field;
  if (typeof flags !== "number") return undefined;
  const isUnsigned = (flags & UNSIGNED) !== 0;
  switch (columnType) {
    case Types.TINY:
      return isUnsigned ? (packet) => packet.readInt8() : (packet) => packet.readSInt8();
    case Types.SHORT:
      return isUnsigned ? (packet) => packet.readInt16() : (packet) => packet.readSInt16();
    case Types.LONG:
    case Types.INT24:
      return isUnsigned ? (packet) => packet.readInt32() : (packet) => packet.readSInt32();
    case Types.LONGLONG:
      return isUnsigned ? readUnsignedLong : readSignedLong;
    case Types.DOUBLE:
      return (packet) => packet.readDouble();
    case Types.NEWDECIMAL:
      return (packet) => packet.readLengthCodedString("ascii");
    case Types.DATE:
    case Types.DATETIME:
    case Types.TIMESTAMP:
      return (packet) => packet.readDateTimeString(decimals, null, columnType);
    case Types.VAR_STRING:
    case Types.STRING:
    case Types.BLOB:
      if (characterSet === BINARY || encoding === undefined) return undefined;
      return (packet) => packet.readLengthCodedString(encoding);
    default:
      return undefined;
  }
}

function readSignedLong(packet: Packet): string {
  const { buffer, offset } = packet;
  packet.offset = offset + 8;
  const high = buffer.readInt32LE(offset + 4);
  if (high < -INEXACT || high >= INEXACT) return String(buffer.readBigInt64LE(offset));
  return String(high * 2 ** 32 + buffer.readUInt32LE(offset));
}

function readUnsignedLong(packet: Packet): string {
  const { buffer, offset } = packet;
  packet.offset = offset + 8;
  const high = buffer.readUInt32LE(offset + 4);
  if (high >= INEXACT) return String(buffer.readBigUInt64LE(offset));
  return String(high * 2 ** 32 + buffer.readUInt32LE(offset));
}
