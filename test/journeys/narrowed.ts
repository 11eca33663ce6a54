import type { Test } from "tap";
import { openStaffed, putInForce, textOf, tokenOf } from "./staff.ts";

/** Who is there, and by which plain entries. */
const staff = [
  ...["root * Owner", "olga main Owner", "otto main Owner", "dora main DbAdmin"],
  ...["rita main ReadOnly", "wim main ReadWrite", "tina main DbAdmin", "hank side ReadOnly"],
  ...["tom side ReadOnly", "tess main Owner", "duo main ReadOnly", "mona main ReadOnly"],
];

/** An entry, as the file has it. */
export const entry = (username: string, database: string, more: string) =>
  `[[acl]]\nusername = "${username}"\ndatabase = "${database}"\n${more}\n\n`;

export const soon = new Date(Date.now() + 3_600_000).toISOString();

/** Entries that say more than a role. */
const more = [
  entry("tina", "main", 'role = "ReadOnly"\ntables = ["secrets"]'),
  entry("tom", "main", 'role = "ReadWrite"\ntables = ["tickets"]\ncolumns = ["id"]'),
  entry("tess", "main", `role = "Owner"\nexpires = ${soon}`),
  entry("duo", "main", `role = "ReadWrite"\nexpires = ${soon}`),
  entry("mona", "main", 'role = "None"\ntables = ["a", "b"]'),
  entry("hank", "main", 'role = "Owner"\nrequire_approval = ["DELETE"]'),
  entry("tom", "*", 'role = "None"\ntables = ["audit_*"]'),
].join("");

/** A gateway with those, which a request of `/api` changes; each test begins with the file as it was. */
export async function openNarrowed(t: Test) {
  const { gateway } = await openStaffed(t, staff, { more });
  const root = await tokenOf(gateway, "root");
  const original = textOf(gateway);
  t.afterEach(() => putInForce(gateway, original));
  return {
    ...{ gateway, root, original },
    put: (place: string, body: unknown, token = root) =>
      gateway.send("PUT", `/api/access/${place}`, body, token),
    remove: (place: string, token = root) =>
      gateway.send("DELETE", `/api/access/${place}`, undefined, token),
  };
}
