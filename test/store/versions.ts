/** Copies of the project that differ from it as a later version would. */
import { cpSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { fill } from "../deploy/programs.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { projectRoot } from "../kit/process.ts";

/** What a version runs from, beside its libraries. */
const parts = ["bin", "src", "package.json"];

/** What the version after this one has: another table, another column, another form of the log. */
const changes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "src/store/migrations.ts": {
    "\n];\n\nexport const MIGRATIONS": `
  \`create table gatehouse.later (name text primary key);
  alter table gatehouse.leases add column release text not null default 'later'\`,
];

export const MIGRATIONS`,
  },
  "src/store/log.ts": {
    "FORM: number = ": "FORM: number = 1 + ",
    "return forms[kind];": 'return kind === "revocation" ? FORM : forms[kind];',
  },
};

/** Makes the version after this one, and returns where it is. */
export function makeLaterVersion(t: Test): string {
  const root = temporaryHome(t);
  for (const part of parts)
    cpSync(path.join(projectRoot, part), path.join(root, part), { recursive: true });
  symlinkSync(path.join(projectRoot, "node_modules"), path.join(root, "node_modules"));
  for (const [file, passages] of Object.entries(changes)) {
    const place = path.join(root, file);
    writeFileSync(place, fill(readFileSync(place, "utf8"), passages));
  }
  return root;
}
