import { existsSync } from "node:fs";
import type { Command } from "commander";
import { hasAdministrator } from "../access/administration.ts";
import { entriesIn } from "../access/entries.ts";
import { placeOf } from "../access/grant.ts";
import { findOddities } from "../access/oddities.ts";
import { namesWithoutRecord } from "../access/parse.ts";
import { caseConflictsOf } from "../access/policy.ts";
import { boundaryName } from "../access/rights.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { storeName, storesAccess } from "../config/addresses.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { runAtOnce } from "../cooperative-scheduling.ts";
import { hasOwnEngine, knownDatabases, ownDatabaseUrl } from "../gateway/own-engine.ts";
import { readCertificate } from "../gateway/secure-server.ts";
import { keysDirectoryOf } from "../identity/key-file.ts";
import { counted } from "../suggestion.ts";
import { missingNames } from "./database-schema.ts";
import { loadFor } from "./load.ts";
import { keysOf, readAccess, revocationsOf } from "./operator.ts";
import { type CommonOptions, commandGroup, subcommand } from "./options.ts";
import { explain, FAILURE, print, printJson, reportFailure, warn } from "./output.ts";
import { exposureWarnings, writeProblems } from "./start-checks.ts";

/** State of a file that a start reads. An absent one is created by a start or a revocation. */
type PartState = "ok" | "absent";

/** Prints the findings of `gatehouse config check` line by line, or collects them as JSON. */
interface CheckReport {
  part(name: string, state: PartState, text: string): void;
  warn(sentence: string): void;
  fail(error: unknown): void;
  end(): void;
}

const NAME_WIDTH = 14;

const words = { ok: "ok", absent: "--" };

const reportForPeople: CheckReport = {
  part: (name, state, text) => print(`${name.padEnd(NAME_WIDTH)} ${words[state]}  ${text}`),
  warn,
  fail: reportFailure,
  end() {},
};

function reportForScripts(): CheckReport {
  const [parts, warnings, errors]: [object[], string[], string[]] = [[], [], []];
  return {
    part: (part, state, text) => void parts.push({ part, state, text }),
    warn: (sentence) => void warnings.push(sentence),
    fail: (error) => void errors.push(...explain(error).split("\n")),
    end() {
      printJson({ ok: errors.length === 0, errors, warnings, parts });
      if (errors.length > 0) process.exitCode = FAILURE;
    },
  };
}

function openReport({ json }: { readonly json?: true }): CheckReport {
  return json ? reportForScripts() : reportForPeople;
}

/** Checks that the store can be read with all its content. */
async function checkStore(loaded: LoadedConfiguration, report: CheckReport): Promise<void> {
  const name = storeName(loaded.configuration);
  const keys = await (await keysOf(loaded)).read();
  const { count } = await (await revocationsOf(loaded)).read();
  report.part(
    "store",
    "ok",
    `${name} (${counted(keys.length, "signing key")}, ${counted(count, "revocation")})`,
  );
  await checkAccess(loaded, report);
}

async function checkDatabase(loaded: LoadedConfiguration, report: CheckReport): Promise<void> {
  const url = hasOwnEngine(loaded) ? ownDatabaseUrl(loaded) : "";
  const isPostgres = /^postgres(ql)?:/.test(url);
  if (!isPostgres && !/^(mysql|mariadb):/.test(url)) return;
  const { parseAddress } = isPostgres
    ? await import("../engine/postgres/address.ts")
    : await import("../engine/mysql/address.ts");
  try {
    const { host, port, user } = parseAddress(url);
    report.part("database", "ok", `${user} on ${host}:${port} (its URL)`);
  } catch (error) {
    throw new Error(`upstream.url: ${error instanceof Error ? error.message : ""}`);
  }
}

async function checkKeys(loaded: LoadedConfiguration, report: CheckReport): Promise<void> {
  const keys = keysDirectoryOf(loaded.serviceDirectory);
  if (!existsSync(keys)) {
    const isFirstStart = !existsSync(loaded.configuration.auth.access_control_file);
    const which = isFirstStart ? "first start" : "next start, and tokens of before stop working";
    report.part("signing keys", "absent", `${keys} is made by the ${which}`);
    return;
  }
  const found = await (await keysOf(loaded)).read();
  report.part("signing keys", "ok", `${keys} (${found.length})`);
}

async function checkAccessFile(loaded: LoadedConfiguration, report: CheckReport): Promise<void> {
  const file = loaded.configuration.auth.access_control_file;
  const isFirstStart = ![file, keysDirectoryOf(loaded.serviceDirectory)].some(existsSync);
  if (isFirstStart) report.part("access file", "absent", `${file} is made by the first start`);
  else await checkAccess(loaded, report);
}

async function checkAccess(loaded: LoadedConfiguration, report: CheckReport): Promise<void> {
  const { auth } = loaded.configuration;
  const snapshot = await readAccess(loaded);
  const grants = snapshot.grants
    .values()
    .reduce((sum, own) => sum + entriesIn(own).reduce((count) => count + 1, 0), 0);
  const counts = `${counted(snapshot.users.size, "user")}, ${counted(grants, "grant")}, version ${snapshot.version}`;
  const place = storesAccess(loaded.configuration) ? "in the store" : auth.access_control_file;
  report.part("access file", "ok", `${place} (${counts})`);
  for (const name of runAtOnce(namesWithoutRecord(snapshot))) {
    report.warn(`there are grants for ${name}, but no record`);
  }
  if (!runAtOnce(hasAdministrator(snapshot))) {
    report.warn(
      "no administrator can log in: nobody with a password is Owner of *, without an end",
    );
  }
  warnOfAll(runAtOnce(findOddities(snapshot, Date.now())), report);
  warnOfAll(await missingNames(loaded, namedIn(snapshot)), report);
  for (const { named, database, users } of caseConflictsOf(snapshot, knownDatabases(loaded))) {
    const whom = users.length === 0 ? "" : `, also to ${users.join(", ")}`;
    report.warn(
      `the access file names ${named}: the database ${database} is denied to everybody${whom}`,
    );
  }
}

const SHOWN = 50;

function warnOfAll(sentences: readonly string[], report: CheckReport): void {
  for (const sentence of sentences.slice(0, SHOWN)) report.warn(sentence);
  if (sentences.length > SHOWN) report.warn(`and ${sentences.length - SHOWN} more`);
}

function* namedIn({ grants, boundaries }: Snapshot) {
  for (const own of grants.values()) {
    for (const grant of entriesIn(own)) {
      yield [`the entry of ${grant.username} for ${placeOf(grant)}`, grant] as const;
    }
  }
  for (const one of boundaries) yield [`the boundary ${boundaryName(one)}`, one] as const;
}

async function checkRevocations(loaded: LoadedConfiguration, report: CheckReport): Promise<void> {
  const file = loaded.configuration.auth.revocations_file;
  if (!existsSync(file)) {
    report.part("revocations", "absent", `${file} is made by the first revocation`);
    return;
  }
  const { count } = await (await revocationsOf(loaded)).read();
  report.part("revocations", "ok", `${file} (${count})`);
}

async function checkCertificate(
  { configuration: { server, auth } }: LoadedConfiguration,
  report: CheckReport,
) {
  const { certificate, key } = server.tls;
  if (certificate === undefined || key === undefined) return;
  const options = { checkRead: auth.check_permissions };
  const { names, expires } = await readCertificate({ certificate, key }, options);
  report.part("certificate", "ok", `${certificate} (${names}, until ${expires.toISOString()})`);
  if (expires.getTime() <= Date.now()) report.warn("the certificate has expired");
}

function checkWrites(loaded: LoadedConfiguration): void {
  const problems = writeProblems(loaded);
  if (problems.length > 0) throw new Error(problems.join("\n"));
}

async function checkAll(options: CommonOptions, report: CheckReport): Promise<void> {
  const loaded = loadFor(options);
  report.part("configuration", "ok", loaded.file ?? "(none: defaults)");
  for (const { about, sentence } of exposureWarnings(loaded)) {
    const where = about.host === undefined ? "" : `server.host ${about.host}: `;
    report.warn(`${where}${sentence}`);
  }
  const isShared = loaded.configuration.store.url !== undefined;
  const held = isShared ? [checkStore] : [checkKeys, checkAccessFile, checkRevocations];
  for (const part of [checkDatabase, checkCertificate, ...held, checkWrites]) {
    try {
      await part(loaded, report);
    } catch (error) {
      // Continue with the other checks, so that one run lists everything to fix.
      report.fail(error);
    }
  }
}

async function check(options: CommonOptions & { json?: true }): Promise<void> {
  const report = openReport(options);
  await checkAll(options, report).catch(report.fail);
  report.end();
}

export function configCommand(): Command {
  const config = commandGroup("config", "check the files that the gateway reads");
  subcommand(
    config,
    "check",
    "check all that a start reads, and whether it can write what it makes; change nothing",
  )
    .option("--json", "as JSON")
    .action(check);
  return config;
}
