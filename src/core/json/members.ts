import type { Steps } from "../base/cooperative-scheduling.ts";
import { JsonFault } from "./fault.ts";
import { type Mode, SKIPPED, STRIDE, Tape, UNIQUE } from "./tape.ts";

/** The members of a JSON object, each with the bytes of its value as sent. */
type Members = ReadonlyMap<string, Buffer>;

const BYTES_PER_STEP = 32 * 1024;

type VisitMember = (key: string, value: Buffer) => void;

/** The tokens of an object and its members, whose values are only checked. */
class MembersTape extends Tape {
  readonly #mode: Mode;

  constructor(bytes: Buffer, mode: Mode) {
    super(bytes, false);
    this.#mode = mode;
  }

  protected override modeOf(): Mode {
    return this.#mode;
  }
}

function* visitAll(bytes: Buffer, visit: VisitMember, mode: Mode): Steps<void> {
  const tape = new MembersTape(bytes, mode);
  while (!tape.run(BYTES_PER_STEP)) yield;
  const found = tape.kind(0);
  if (found !== "an object") {
    throw new JsonFault("wrong_type", `an object is expected, ${found} was found`, tape.start(0));
  }
  const keys = new Set<string>();
  const end = tape.next(0);
  for (let key = STRIDE; key < end; key = tape.next(key + STRIDE)) {
    const name = tape.name(key);
    if (keys.has(name))
      throw new JsonFault("duplicate_key", "a key is given twice", tape.start(key));
    keys.add(name);
    visit(name, bytes.subarray(tape.start(key + STRIDE), tape.end(key + STRIDE)));
    if (keys.size % MEMBERS_PER_STEP === 0) yield;
  }
}

const MEMBERS_PER_STEP = 256;

/**
 * Visits the members of one JSON object without building their values.
 *
 * @throws JsonFault for invalid UTF-8, a byte-order mark, anything but one object, a duplicate key
 *   at any depth, a lone surrogate, and nesting over 64
 */
export function visitMembers(bytes: Buffer, visit: VisitMember): Steps<void> {
  return visitAll(bytes, visit, UNIQUE);
}

/**
 * As `visitMembers` but faster, for an object inside one that `visitMembers` has already checked.
 */
export function visitCheckedMembers(bytes: Buffer, visit: VisitMember): Steps<void> {
  return visitAll(bytes, visit, SKIPPED);
}

export function writeMembers(members: Members): Buffer {
  const pieces = Array.from(members, ([key, value], at) => [
    Buffer.from(`${at === 0 ? "" : ","}${JSON.stringify(key)}:`),
    value,
  ]);
  return Buffer.concat([Buffer.from("{"), ...pieces.flat(), Buffer.from("}")]);
}

export function beginsWith(value: Buffer, mark: "{" | "[" | '"'): boolean {
  return value[0] === mark.charCodeAt(0);
}

/** The text of a string value. Undefined for any other value. */
export function readText(value: Buffer | undefined): string | undefined {
  if (value === undefined || !beginsWith(value, '"')) return undefined;
  const text: unknown = JSON.parse(value.toString("utf8"));
  return typeof text === "string" ? text : undefined;
}
