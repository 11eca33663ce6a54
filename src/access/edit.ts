import { runAtOnce, type Steps } from "../cooperative-scheduling.ts";
import type { Change, UserUpdate } from "./change.ts";
import type { AccessRecords } from "./records.ts";
import type { Grant, User } from "./snapshot.ts";
import { outlinedBlocks, plainBlocks } from "./table-blocks.ts";
import { type Scalar, TextEditor } from "./text-editor.ts";

/** The keys of the file for the fields of a user. */
const userKeys = {
  email: "email",
  passwordHash: "password_hash",
  disabled: "disabled",
  tokensValidAfter: "tokens_valid_after",
} as const satisfies Record<keyof UserUpdate, string>;

/** The value as the file holds it; a default is left out. */
function written(value: Scalar | undefined): Scalar | undefined {
  return value === false || value === 0 ? undefined : value;
}

function userFields(user: User): Record<string, Scalar> {
  const fields: Record<string, Scalar> = { username: user.username };
  for (const field of Object.keys(userKeys) as (keyof typeof userKeys)[]) {
    const value = written(user[field]);
    if (value !== undefined) fields[userKeys[field]] = value;
  }
  return fields;
}

function editUser(editor: TextEditor, index: number, update: UserUpdate): void {
  for (const field of Object.keys(userKeys) as (keyof typeof userKeys)[]) {
    if (field in update) editor.set("users", index, userKeys[field], written(update[field]));
  }
}

function userIndex(users: readonly User[], name: string): number {
  return users.findIndex(({ username }) => username === name);
}

function grantIndex(grants: readonly Grant[], username: string, database: string): number {
  return grants.findIndex((grant) => grant.username === username && grant.database === database);
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
      editUser(editor, userIndex(records.users, change.username), change.update);
      break;
    case "remove-user":
      removeUser(editor, records, change.username);
      break;
    case "add-grant":
      editor.append("acl", { ...change.grant });
      break;
    case "set-grant": {
      const { username, database, role } = change.grant;
      editor.set("acl", grantIndex(records.grants, username, database), "role", role);
      break;
    }
    case "remove-grant":
      editor.removeTable("acl", grantIndex(records.grants, change.username, change.database));
      break;
  }
}

/**
 * The text with `changes` made in it, in steps. `records` are those of `text`.
 *
 * @throws UneditableError if the text is not written as tables
 */
export function* editSteps(
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
