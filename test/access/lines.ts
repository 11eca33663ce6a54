/** Which lines of an access file belong to the records that a change means. */

import { type Change, usernameOf } from "../../src/access/record-change.ts";
import type { AccessRecords } from "../../src/access/records.ts";
import { outline } from "../../src/toml/toml.ts";
import { parseRecords } from "./kit.ts";

/** The lines of `text` without their line ends. */
export function contentLines(text: string): string[] {
  return text.split(/\r?\n/);
}

function isMeant({ users, grants }: AccessRecords, change: Change) {
  return (table: string | undefined, index: number): boolean => {
    if (change.kind === "add-user" || change.kind === "add-grant") return false;
    const record = table === "users" ? users[index] : grants[index];
    if (record?.username !== usernameOf(change)) return false;
    if (change.kind === "remove-user") return true;
    if (change.kind === "update-user") return table === "users";
    const { database } = "grant" in change ? change.grant : change;
    return table === "acl" && grants[index]?.database === database;
  };
}

/** The numbers, from 0, of the lines on which the records that `change` means are written. */
export function ownedLines(text: string, change: Change): Set<number> {
  const meant = isMeant(parseRecords(text, "access.toml"), change);
  const owned = new Set<number>();
  const records: Record<string, number> = { users: 0, acl: 0 };
  let isOwned = false;
  for (const statement of outline(text)) {
    if (statement.kind === "array-table") {
      const [table = ""] = statement.path;
      const index = records[table] ?? 0;
      isOwned = meant(table, index);
      records[table] = index + 1;
    }
    if (!isOwned) continue;
    const first = statement.line - 1;
    const height = contentLines(text.slice(statement.start, statement.end)).length;
    for (let line = first; line < first + height; line += 1) owned.add(line);
  }
  return owned;
}
