import { existsSync } from "node:fs";
import type { Command } from "commander";
import { findOddities } from "../access/oddities.ts";
import { namesWithoutRecord } from "../access/parse.ts";
import { caseConflictsOf } from "../access/policy.ts";
import { hasAdministrator } from "../access/remaining-owners.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { entriesIn } from "../access/user-grants.ts";
import { storeName, storesAccess } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { runAtOnce } from "../cooperative-scheduling.ts";
import { readCertificate } from "../gateway/certificate.ts";
import { knownDatabases } from "../gateway/own-engine.ts";
import { keysDirectoryOf } from "../identity/key-file.ts";
import { loadFor } from "./load.ts";
import { keysOf, readAccess, revocationsOf } from "./operator.ts";
import { type CommonOptions, commandGroup, subcommand } from "./options.ts";
import { print, reportFailure, warn } from "./output.ts";
import { exposureWarnings, writeProblems } from "./start-checks.ts";

/** Checks that the store can be read, and all that it holds. */
async function checkStore(loaded: LoadedConfiguration): Promise<void> {
  const name = storeName(loaded.configuration);
  const keys = await (await keysOf(loaded)).read();
  const { count } = await (await revocationsOf(loaded)).read();
  print(`store          ok  ${name} (${keys.length} signing keys, ${count} revocations)`);
  await checkAccess(loaded);
}

async function checkKeys(loaded: LoadedConfiguration): Promise<void> {
  const keys = keysDirectoryOf(loaded.serviceDirectory);
  if (!existsSync(keys)) {
    const isFirstStart = !existsSync(loaded.configuration.auth.access_control_file);
    const which = isFirstStart ? "first start" : "next start, and tokens of before stop working";
    print(`signing keys   --  ${keys} is made by the ${which}`);
    return;
  }
  const found = await (await keysOf(loaded)).read();
  print(`signing keys   ok  ${keys} (${found.length})`);
}

async function checkAccessFile(loaded: LoadedConfiguration): Promise<void> {
  const file = loaded.configuration.auth.access_control_file;
  const isFirstStart = ![file, keysDirectoryOf(loaded.serviceDirectory)].some(existsSync);
  if (isFirstStart) print(`access file    --  ${file} is made by the first start`);
  else await checkAccess(loaded);
}

async function checkAccess(loaded: LoadedConfiguration): Promise<void> {
  const { auth } = loaded.configuration;
  const snapshot = await readAccess(loaded);
  const grants = snapshot.grants
    .values()
    .reduce((sum, own) => sum + entriesIn(own).reduce((count) => count + 1, 0), 0);
  const counts = `${snapshot.users.size} users, ${grants} grants, version ${snapshot.version}`;
  const place = storesAccess(loaded.configuration) ? "in the store" : auth.access_control_file;
  print(`access file    ok  ${place} (${counts})`);
  for (const name of runAtOnce(namesWithoutRecord(snapshot))) {
    warn(`there are grants for ${name}, but no record`);
  }
  if (!runAtOnce(hasAdministrator(snapshot))) {
    warn("no administrator can log in: nobody with a password is Owner of *, without an end");
  }
  warnOfOddEntries(snapshot);
  for (const { named, database, users } of caseConflictsOf(snapshot, knownDatabases(loaded))) {
    const whom = users.length === 0 ? "" : `, also to ${users.join(", ")}`;
    warn(`the access file names ${named}: the database ${database} is denied to everybody${whom}`);
  }
}

/** Warnings of one kind that are printed, at most. */
const SHOWN = 50;

/** Warns of entries and boundaries that may mean otherwise than they were meant. */
function warnOfOddEntries(snapshot: Snapshot): void {
  const odd = runAtOnce(findOddities(snapshot, Date.now()));
  for (const sentence of odd.slice(0, SHOWN)) warn(sentence);
  if (odd.length > SHOWN) warn(`and ${odd.length - SHOWN} more`);
}

async function checkRevocations(loaded: LoadedConfiguration): Promise<void> {
  const file = loaded.configuration.auth.revocations_file;
  if (!existsSync(file)) {
    print(`revocations    --  ${file} is made by the first revocation`);
    return;
  }
  const { count } = await (await revocationsOf(loaded)).read();
  print(`revocations    ok  ${file} (${count})`);
}

async function checkCertificate({ configuration: { server, auth } }: LoadedConfiguration) {
  const { certificate, key } = server.tls;
  if (certificate === undefined || key === undefined) return;
  const options = { checkRead: auth.check_permissions };
  const { names, expires } = await readCertificate({ certificate, key }, options);
  print(`certificate    ok  ${certificate} (${names}, until ${expires.toISOString()})`);
  if (expires.getTime() <= Date.now()) warn("it has expired");
}

function checkWrites(loaded: LoadedConfiguration): void {
  const problems = writeProblems(loaded);
  if (problems.length > 0) throw new Error(problems.join("\n"));
}

async function check(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  print(`configuration  ok  ${loaded.file ?? "(none: defaults)"}`);
  for (const { about, sentence } of exposureWarnings(loaded)) {
    const where = about.host === undefined ? "" : `server.host ${about.host}: `;
    warn(`${where}${sentence}`);
  }
  const isShared = loaded.configuration.store.url !== undefined;
  const held = isShared ? [checkStore] : [checkKeys, checkAccessFile, checkRevocations];
  for (const part of [checkCertificate, ...held, checkWrites]) {
    try {
      await part(loaded);
    } catch (error) {
      // The others are checked all the same, so that one run tells all that is to be mended.
      reportFailure(error);
    }
  }
}

/** `gatehouse config`: the files that the gateway reads. */
export function configCommand(): Command {
  const config = commandGroup("config", "check the files that the gateway reads");
  subcommand(
    config,
    "check",
    "check all that a start reads, and whether it can write what it makes; change nothing",
  ).action(check);
  return config;
}
