import { isDeepStrictEqual } from "node:util";
import { runAtOnce, type Steps, visitEach } from "../cooperative-scheduling.ts";
import { decodeSteps } from "../files/guarded.ts";
import type { Writable } from "../toml/values.ts";
import { writtenEntry } from "./limit-fields.ts";
import { MAX_ACCESS_FILE_BYTES, type ParsedAccess, parseSteps } from "./parse.ts";
import { applyChanges, type Change, type UserUpdate } from "./record-change.ts";
import type { AccessRecords } from "./records.ts";
import type { Grant, User } from "./snapshot.ts";
import { outlinedBlocks, plainBlocks } from "./table-blocks.ts";
import { TextEditor, UneditableError } from "./text-editor.ts";
import { isSamePlace } from "./user-grants.ts";

/** The keys of the file for the fields of a user. */
const userKeys = {
  email: "email",
  passwordHash: "password_hash",
  disabled: "disabled",
  tokensValidAfter: "tokens_valid_after",
} as const satisfies Record<keyof UserUpdate, string>;
const userFieldNames = Object.keys(userKeys) as (keyof UserUpdate)[];

/** The value as the file holds it; a default is left out. */
function written(value: Writable | undefined): Writable | undefined {
  return value === false || value === 0 ? undefined : value;
}

function userFields(user: User): Record<string, Writable> {
  const fields: Record<string, Writable> = { username: user.username };
  for (const field of userFieldNames) {
    const value = written(user[field]);
    if (value !== undefined) fields[userKeys[field]] = value;
  }
  return fields;
}

/** The place of a record among others; it is there, since a change is judged by what it is made to. */
function placeOf<Item>(records: readonly Item[], isMeant: (record: Item) => boolean): number {
  const index = records.findIndex(isMeant);
  if (index === -1) throw new UneditableError("the record to change is not in the file");
  return index;
}

function editUser(editor: TextEditor, users: readonly User[], name: string, update: UserUpdate) {
  const index = placeOf(users, ({ username }) => username === name);
  for (const field of userFieldNames) {
    if (field in update) editor.set("users", index, userKeys[field], written(update[field]));
  }
}

/** Sets the keys of an entry that are to differ from what they are. */
function editGrant(editor: TextEditor, grants: readonly Grant[], grant: Grant): void {
  const index = placeOf(grants, (known) => isSamePlace(known, grant));
  const before = grants[index];
  if (before === undefined) return;
  const [old, fields] = [writtenEntry(before), writtenEntry(grant)];
  for (const key of new Set([...Object.keys(old), ...Object.keys(fields)])) {
    if (!isDeepStrictEqual(old[key], fields[key])) editor.set("acl", index, key, fields[key]);
  }
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
      editor.append("users", userFields(change.user));
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
 * The text with `changes` made in it, in steps. `records` are those of `text`.
 *
 * @throws UneditableError if the text is not written as tables
 */
function* editSteps(
  text: string,
  records: AccessRecords,
  changes: readonly Change[],
): Steps<string> {
  const editor = new TextEditor(text, (yield* plainBlocks(text)) ?? outlinedBlocks(text));
  for (const change of changes) {
    edit(editor, records, change);
    yield;
  }
  return editor.finish();
}

/** The text with `changes` made in it. @throws UneditableError */
export function editText(text: string, records: AccessRecords, changes: readonly Change[]): string {
  return runAtOnce(editSteps(text, records, changes));
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
  const text = yield* decodeSteps(file, before.bytes);
  const edited = Buffer.from(yield* editSteps(text, before.records, changes));
  if (edited.length > MAX_ACCESS_FILE_BYTES) {
    throw new UneditableError("it would be larger than 256 MiB");
  }
  const after = yield* parseSteps(edited, file, before);
  if (yield* holdsExactly(after.records, expected)) return after;
  throw new UneditableError("the edit would change more than it means to");
}
