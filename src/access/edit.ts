import { isDeepStrictEqual } from "node:util";
import { runAtOnce, type Steps, visitEach } from "../cooperative-scheduling.ts";
import type { Writable } from "../toml/values.ts";
import type { PlainFile } from "./incremental-parse.ts";
import { writtenEntry } from "./limit-fields.ts";
import { MAX_ACCESS_FILE_BYTES, type ParsedAccess, parseSteps } from "./parse.ts";
import { applyChanges, type Change } from "./record-change.ts";
import { type TableName, tableOf } from "./record-tables.ts";
import type { AccessRecords } from "./records.ts";
import type { Grant, User } from "./snapshot.ts";
import { type Block, outlinedBlocks } from "./table-blocks.ts";
import { TextEditor, UneditableError } from "./text-editor.ts";
import { isSamePlace } from "./user-grants.ts";
import { type UserUpdate, updatedUser, writtenUser } from "./user-record.ts";

/** The place of a record among others; it is there, since a change is judged by what it is made to. */
function placeOf<Item>(records: readonly Item[], isMeant: (record: Item) => boolean): number {
  const index = records.findIndex(isMeant);
  if (index === -1) throw new UneditableError("the record to change is not in the file");
  return index;
}

/** Sets the keys of a record that are to differ from what they are. */
function editKeys(
  editor: TextEditor,
  table: TableName,
  index: number,
  { old, wanted }: Record<"old" | "wanted", Record<string, Writable>>,
): void {
  for (const key of new Set([...Object.keys(old), ...Object.keys(wanted)])) {
    if (!isDeepStrictEqual(old[key], wanted[key])) editor.set(table, index, key, wanted[key]);
  }
}

function editUser(editor: TextEditor, users: readonly User[], name: string, update: UserUpdate) {
  const index = placeOf(users, ({ username }) => username === name);
  const before = users[index];
  if (before === undefined) return;
  const wanted = writtenUser(updatedUser(before, update));
  editKeys(editor, "users", index, { old: writtenUser(before), wanted });
}

function editGrant(editor: TextEditor, grants: readonly Grant[], grant: Grant): void {
  const index = placeOf(grants, (known) => isSamePlace(known, grant));
  const before = grants[index];
  if (before === undefined) return;
  editKeys(editor, "acl", index, { old: writtenEntry(before), wanted: writtenEntry(grant) });
}

function removeUser(editor: TextEditor, { users, grants }: AccessRecords, name: string): void {
  for (const [index, { username }] of users.entries()) {
    if (username === name) editor.removeTable("users", index);
  }
  for (const [index, { username }] of grants.entries()) {
    if (username === name) editor.removeTable("acl", index);
  }
}

function edit(editor: TextEditor, records: AccessRecords, change: Change): void {
  switch (change.kind) {
    case "add-user":
      editor.append("users", writtenUser(change.user));
      break;
    case "update-user":
      editUser(editor, records.users, change.username, change.update);
      break;
    case "remove-user":
      removeUser(editor, records, change.username);
      break;
    case "add-grant":
      editor.append("acl", writtenEntry(change.grant));
      break;
    case "set-grant":
      editGrant(editor, records.grants, change.grant);
      break;
    case "remove-grant": {
      const isMeant = (known: Grant) => isSamePlace(known, change.grant);
      editor.removeTable("acl", placeOf(records.grants, isMeant));
      break;
    }
  }
}

/**
 * The bytes with `changes` made in them, in steps. `records` are those of the bytes.
 *
 * @param blocks where the tables stand
 * @throws UneditableError if the file is not written as tables
 */
function* editSteps(
  bytes: Buffer,
  blocks: readonly Block[] | undefined,
  records: AccessRecords,
  changes: readonly Change[],
): Steps<Buffer> {
  const editor = new TextEditor(bytes, blocks);
  for (const change of changes) {
    edit(editor, records, change);
    yield;
  }
  return editor.finish();
}

/** Where the tables of a plainly written file stand. */
function* blocksOf({ preamble, blocks: { lengths, records } }: PlainFile): Steps<Block[]> {
  const blocks: Block[] = [];
  let start = preamble;
  yield* visitEach(records, (record, at) => {
    const end = start + (lengths[at] ?? 0);
    blocks.push({ table: tableOf(record), start, end });
    start = end;
  });
  return blocks;
}

/** The text with `changes` made in it. @throws UneditableError */
export function editText(text: string, records: AccessRecords, changes: readonly Change[]): string {
  const bytes = Buffer.from(text);
  const blocks = outlinedBlocks(bytes.toString("latin1"));
  return runAtOnce(editSteps(bytes, blocks, records, changes)).toString();
}

function* areEqual<T>(some: readonly T[], others: readonly T[]): Steps<boolean> {
  let equal = some.length === others.length;
  yield* visitEach(some, (one, index) => {
    const other = others[index];
    // Most records are the very same objects, since only what has changed was parsed.
    equal &&= one === other || isDeepStrictEqual(one, other);
  });
  return equal;
}

function* holdsExactly(parsed: AccessRecords, expected: AccessRecords): Steps<boolean> {
  const usersAre = yield* areEqual(parsed.users, expected.users);
  return usersAre && (yield* areEqual(parsed.grants, expected.grants));
}

/** A file that holds nobody is taken as truncated, so none is written. */
export class NothingLeftError extends UneditableError {
  constructor() {
    super("it would hold no user and no grant");
  }
}

/** The file with `changes` made, proven to hold the old records plus exactly those. */
export function* editAndVerify(
  before: ParsedAccess,
  file: string,
  changes: readonly Change[],
): Steps<ParsedAccess> {
  const expected = yield* applyChanges(before.records, changes);
  if (expected.users.length === 0 && expected.grants.length === 0) throw new NothingLeftError();
  const { bytes, plain, records } = before;
  const blocks = plain ? yield* blocksOf(plain) : outlinedBlocks(bytes.toString("latin1"));
  const edited = yield* editSteps(bytes, blocks, records, changes);
  if (edited.length > MAX_ACCESS_FILE_BYTES) {
    throw new UneditableError("it would be larger than 256 MiB");
  }
  const after = yield* parseSteps(edited, file, before);
  if (yield* holdsExactly(after.records, expected)) return after;
  throw new UneditableError("the edit would change more than it means to");
}
