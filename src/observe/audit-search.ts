/** Questions to the audit's files that are answered by the newest lines first, a page at a time. */
import { type FileHandle, open } from "node:fs/promises";
import {
  auditFilesOf,
  CHUNK_BYTES,
  DISORDER_MS,
  isCompressed,
  offsetsOf,
  timeIn,
  unpacked,
} from "./audit-files.ts";
import {
  type AuditFilter,
  matcherOf,
  needlesOf,
  parseLine,
  type ReadLine,
} from "./audit-filter.ts";
import { findIndex } from "./audit-index.ts";
import {
  findLines,
  LONGEST_LINE,
  NEWLINE,
  type Piece,
  wantedBy,
  wholeLines,
} from "./audit-lines.ts";

/** Where a page has ended: a file, and the byte before which the next one goes on. */
export interface AuditPosition {
  /** The file's inode, which it keeps when it is rotated. */
  readonly inode: string;
  readonly offset: number;
}

/** Whose lines may be shown: those of databases. Names that are not listed are as `others` says. */
export interface ShownDatabases {
  readonly named: ReadonlyMap<string, boolean>;
  readonly others: boolean;
}

/** A question to the audit. */
export interface AuditQuestion {
  readonly file: string;
  readonly filter: AuditFilter;
  /** Undefined for lines of any database, and of none. */
  readonly shown: ShownDatabases | undefined;
  /** Where to go on. */
  readonly from: AuditPosition | undefined;
  /** Lines of an answer. */
  readonly limit: number;
  /** Milliseconds after which what was not found yet is left to the next page. */
  readonly patience: number;
}

/** An answer, the newest line first. */
export interface AuditAnswer {
  readonly lines: readonly ReadLine[];
  /** Where to go on; undefined if there is nothing more. */
  readonly next: AuditPosition | undefined;
  /** True if the file where it was to go on is gone, or compressed by now. */
  readonly isLost: boolean;
  /** The time of the oldest line that was looked at. */
  readonly reached: string | undefined;
  readonly bytesRead: number;
}

/**
 * Reads whole lines from an offset of a file backwards, a piece at a time.
 *
 * @param skip where to go on before an offset at which a line begins
 */
async function* piecesBackwards(
  handle: FileHandle,
  end: number,
  skip: (offset: number) => Promise<number>,
): AsyncGenerator<Piece> {
  let rest: Buffer = Buffer.alloc(0);
  for (let position = await skip(end); position > 0; ) {
    const start = Math.max(0, position - CHUNK_BYTES);
    const chunk = Buffer.allocUnsafe(position - start);
    await handle.read(chunk, 0, chunk.length, start);
    const begin = start === 0 ? 0 : chunk.indexOf(NEWLINE) + 1;
    position = start;
    if (begin > 0 || start === 0) {
      yield { start: start + begin, lines: Buffer.concat([chunk.subarray(begin), rest]) };
      rest = chunk.subarray(0, begin);
      const next = await skip(start + begin);
      if (next === start + begin) continue;
      position = next;
      rest = Buffer.alloc(0);
    } else {
      const isTooLong = rest.length + chunk.length > LONGEST_LINE;
      rest = isTooLong ? Buffer.alloc(0) : Buffer.concat([chunk, rest]);
    }
  }
}

/** The databases that a line is about; undefined if it is about none, or about more besides. */
function databasesOf({ operations, changes }: ReadLine): string[] | undefined {
  const entries = changes.map(({ entry }) => entry);
  if (operations.length + entries.length === 0 || entries.includes(undefined)) return undefined;
  const places = entries.flatMap((entry) => (entry ?? "").split(","));
  return [
    ...operations.map(({ database }) => database),
    ...places.map((place) => place.trim().split(".")[0] ?? ""),
  ];
}

/** Makes the test for lines that may be shown. */
export function mayShow(shown: ShownDatabases | undefined): (line: ReadLine) => boolean {
  if (shown === undefined) return () => true;
  const { named, others } = shown;
  return (line) => databasesOf(line)?.every((name) => named.get(name) ?? others) ?? false;
}

/** One search over the files, the newest first. */
class Search {
  readonly #question: AuditQuestion;
  readonly #needles: readonly string[];
  readonly #fits: (line: ReadLine) => boolean;
  readonly #deadline: number;
  readonly #lines: ReadLine[] = [];
  #reached: string | undefined;
  #bytesRead = 0;

  constructor(question: AuditQuestion) {
    this.#question = question;
    this.#needles = needlesOf(question.filter);
    const [fits, isShown] = [matcherOf(question.filter), mayShow(question.shown)];
    this.#fits = (line) => fits(line) && isShown(line);
    this.#deadline = performance.now() + question.patience;
  }

  /** The lines of a piece that fit, the oldest first, and where they begin. */
  #found(piece: Piece): { line: ReadLine; offset: number }[] {
    const found: { line: ReadLine; offset: number }[] = [];
    findLines(piece, this.#needles, (bytes) => {
      const line = parseLine(bytes);
      const offset = piece.start + bytes.byteOffset - piece.lines.byteOffset;
      if (line !== undefined && this.#fits(line)) found.push({ line, offset });
    });
    this.#bytesRead += piece.lines.length;
    return found;
  }

  /** Takes lines, the newest first. @returns where to go on once the page is full */
  #take(found: { line: ReadLine; offset: number }[]): number | undefined {
    for (const { line, offset } of found.toReversed()) {
      this.#lines.push(line);
      if (this.#lines.length === this.#question.limit) return offset;
    }
    return undefined;
  }

  /** Notes how far it has come. @returns true if all that is older is too old */
  #isPast({ lines }: Piece): boolean {
    const time = timeIn(lines.toString("latin1", 0, 4096));
    this.#reached = time ?? this.#reached;
    return Date.parse(time ?? "") < this.#question.filter.since - DISORDER_MS;
  }

  /** @returns where to go on in this file; -1 if nothing that is older is wanted */
  async #lookBack(handle: FileHandle, end: number): Promise<number | undefined> {
    const { file, filter } = this.#question;
    const { since, until } = filter;
    const { low } = since > 0 ? await offsetsOf(handle, since) : { low: 0 };
    await using index = await findIndex(file, handle, wantedBy(filter));
    const skip = async (offset: number) => index?.skipBack(offset, low) ?? offset;
    const last = Number.isFinite(until)
      ? await offsetsOf(handle, until + 2 * DISORDER_MS)
      : undefined;
    for await (const piece of piecesBackwards(handle, Math.min(end, last?.high ?? end), skip)) {
      const full = this.#take(this.#found(piece));
      const isPast = this.#isPast(piece);
      if (full !== undefined) return full;
      if (isPast) return -1;
      if (performance.now() > this.#deadline) return piece.start;
    }
    return undefined;
  }

  /** A compressed file is read whole, and the last lines are kept that a page has room for. */
  async #lookThrough(file: string, end: number): Promise<number | undefined> {
    let kept: { line: ReadLine; offset: number }[] = [];
    for await (const piece of wholeLines(unpacked(file))) {
      if (piece.start >= end) break;
      const found = this.#found(piece).filter(({ offset }) => offset < end);
      kept = [...kept, ...found].slice(-this.#question.limit);
      if (piece.start === 0) this.#isPast(piece);
    }
    return this.#take(kept) ?? (performance.now() > this.#deadline ? 0 : undefined);
  }

  /** @throws the file system's error */
  async run(): Promise<AuditAnswer> {
    const { file, filter, from } = this.#question;
    let isBehind = from !== undefined;
    let next: AuditPosition | undefined;
    for (const one of (await auditFilesOf(file, filter.since)).toReversed()) {
      await using handle = await open(one);
      const { ino, size } = await handle.stat();
      const inode = String(ino);
      const isFirst = from?.inode === inode;
      if (isBehind && !isFirst) continue;
      isBehind = false;
      const end = isFirst ? from.offset : Number.POSITIVE_INFINITY;
      if (end === 0 || size === 0) continue;
      const offset = isCompressed(one)
        ? await this.#lookThrough(one, end)
        : await this.#lookBack(handle, Math.min(end, size));
      if (offset === -1) break;
      if (offset !== undefined) {
        next = { inode, offset };
        break;
      }
    }
    return {
      ...{ lines: this.#lines, next, isLost: isBehind },
      ...{ reached: this.#reached, bytesRead: this.#bytesRead },
    };
  }
}

/** Asks the audit's files, the newest first. @throws the file system's error */
export function searchAudit(question: AuditQuestion): Promise<AuditAnswer> {
  return new Search(question).run();
}
