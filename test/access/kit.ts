import { writeFileSync } from "node:fs";
import path from "node:path";
import root, { type Test } from "tap";
import { entriesAt } from "../../src/core/access/entries.ts";
import { type Grant, userHolder } from "../../src/core/access/grant.ts";
import { checkRecords, parseAccessFile } from "../../src/core/access/parse.ts";
import type { AccessRecords } from "../../src/core/access/records.ts";
import { ownGrants, type Snapshot } from "../../src/core/access/snapshot.ts";
import { Refusal } from "../../src/core/base/refusal.ts";
import { temporaryHome } from "../kit/gateway.ts";

/** Sixteen bytes of salt and thirty-two of hash, in base64. */
export const SALT = "c2FsdHNhbHRzYWx0c2FsdA";
export const DIGEST = "aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g";

export function hashWith(parameters = "m=64,t=1,p=1"): string {
  return `$argon2id$v=19$${parameters}$${SALT}$${DIGEST}`;
}

/** A `[[users]]` table: with a password unless `keys` says otherwise. */
export function user(username: string, keys = `password_hash = "${hashWith()}"`): string {
  return `[[users]]\nusername = "${username}"\n${keys}${keys === "" ? "" : "\n"}\n`;
}

/** An entry of the access file. @param more further keys, as lines */
export function grant(username: string, database: string, role: string, more = ""): string {
  return entryOf("username", username, database, role, more);
}

export function groupGrant(group: string, database: string, role: string, more = ""): string {
  return entryOf("group", group, database, role, more);
}

function entryOf(
  kind: "username" | "group",
  name: string,
  database: string,
  role: string,
  more: string,
): string {
  const keys = more === "" ? "" : `${more}\n`;
  return `[[acl]]\n${kind} = "${name}"\ndatabase = "${database}"\nrole = "${role}"\n${keys}\n`;
}

export function grantOn(snapshot: Snapshot, username: string, database: string): Grant | undefined {
  const entries = entriesAt(ownGrants(snapshot, userHolder(username)), database, undefined);
  return entries.find(({ expires }) => expires === undefined);
}

/** The records of an access file in their order. @throws AccessFileError */
export function parseRecords(text: string, file: string): AccessRecords {
  return checkRecords(Buffer.from(text), file);
}

/** A snapshot of grants that are written `user database role`, each user with a record. */
export function snapshotOf(...grants: string[]): Snapshot {
  const entries = grants.map((entry) => entry.split(" "));
  const names = new Set(entries.map(([name = ""]) => name));
  const users = [...names].map((name) => user(name));
  const acl = entries.map(([name = "", database = "", role = ""]) => grant(name, database, role));
  return parseAccessFile([...users, ...acl].join(""), "access.toml");
}

/** The code of the refusal that `act` throws; undefined if it throws nothing. */
export function refusalOf(act: () => unknown): string | undefined {
  try {
    act();
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
  return undefined;
}

export async function refusedBy(work: Promise<unknown>): Promise<Refusal> {
  try {
    await work;
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

export function accessFile(t: Test, text: string): string {
  const file = path.join(temporaryHome(t), "access_control.toml");
  writeFileSync(file, text, { mode: 0o600 });
  return file;
}

/** Returns a function that runs tests, each on a new access file with this text. */
export function testsOn(text: string) {
  return (name: string, body: (t: Test, file: string) => Promise<unknown>): void => {
    root.test(name, (t) => body(t, accessFile(t, text)));
  };
}
