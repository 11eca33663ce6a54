import { statSync } from "node:fs";
import type { Command } from "commander";
import { hasOwnEngine, knownDatabases, ownDatabaseUrl } from "../app/own-engine.ts";
import { sizeWarning } from "../core/access/access-file.ts";
import { entriesIn } from "../core/access/entries.ts";
import {
  describePlace,
  groupOf,
  holderName,
  holderText,
  userHolder,
  userOf,
} from "../core/access/grant.ts";
import { lintAccess } from "../core/access/lint.ts";
import { holdersWithoutRecord } from "../core/access/parse.ts";
import { findCaseConflicts, questionSetting } from "../core/access/policy.ts";
import { boundaryName } from "../core/access/rights.ts";
import { prefixWithColon } from "../core/access/roles.ts";
import { runAtOnce } from "../core/base/cooperative-scheduling.ts";
import { isThere } from "../core/base/files/guarded.ts";
import { counted, didYouMean } from "../core/base/suggestion.ts";
import { storeName, storesAccess } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { issuerPrefixes } from "../core/config/schema.ts";
import { administratorWarning } from "../core/http/reloads.ts";
import { readCertificate } from "../core/http/secure-server.ts";
import { hasKeyFiles, keyDirectoryPath } from "../core/identity/key-file.ts";
import { findSigner } from "../core/identity/key-store.ts";
import { expiresSoon, tokenFilePath } from "../core/identity/token-file.ts";
import { missingNames, openAsGuest } from "./database-schema.ts";
import { issuedTokens, keyStore, readAccess, revocationStore, tokenInventory } from "./operator.ts";
import { type CommonOptions, commandGroup, defineCommands, loadFor } from "./options.ts";
import {
  explain,
  FAILURE,
  formatMoment,
  plainly,
  print,
  printJson,
  reportFailure,
  warn,
} from "./output.ts";
import { exposureWarnings, writeProblems } from "./start-checks.ts";

/** An absent part is created by a start or by a revocation. */
type Finding =
  | { readonly part: string; readonly state: "ok" | "absent"; readonly text: string }
  | { readonly warning: string }
  | { readonly error: unknown };
type Findings = AsyncGenerator<Finding, void>;

function ok(part: string, text: string): Finding {
  return { part, state: "ok", text };
}

function absent(part: string, text: string): Finding {
  return { part, state: "absent", text };
}

async function* checkStore(loaded: LoadedConfiguration): Findings {
  const keys = await (await keyStore(loaded)).read();
  const { count } = await (await revocationStore(loaded)).read();
  const counts = `${counted(keys.length, "signing key")}, ${counted(count, "revocation")}`;
  yield ok("store", `${storeName(loaded.configuration)} (${counts})`);
  yield* attempt(checkAccess, loaded);
  yield* checkTokens(loaded);
}

async function* checkDatabase(loaded: LoadedConfiguration): Findings {
  const url = hasOwnEngine(loaded) ? ownDatabaseUrl(loaded) : "";
  const isPostgres = /^postgres(ql)?:/.test(url);
  if (!isPostgres && !/^(mysql|mariadb):/.test(url)) return;
  const { parseAddress } = isPostgres
    ? await import("../engine/postgres/address.ts")
    : await import("../engine/mysql/address.ts");
  const { place, user } = parseAddress(url);
  yield ok("database", `${user} on ${place} (the URL is valid)`);
  try {
    const store = await openAsGuest(loaded);
    await store?.close();
  } catch (error) {
    // Not an error, since the service may have another environment and password file.
    yield { warning: explain(error) };
  }
}

async function* checkKeys(loaded: LoadedConfiguration): Findings {
  const keys = keyDirectoryPath(loaded.serviceDirectory);
  const { access_control_file: accessFile, signing_algorithm: algorithm } =
    loaded.configuration.auth;
  const stored = hasKeyFiles(loaded.serviceDirectory) ? await (await keyStore(loaded)).read() : [];
  if (findSigner(stored, algorithm) !== undefined) {
    yield ok("signing keys", `${keys} (${stored.length})`);
  } else if (stored.length > 0 || isThere(accessFile)) {
    const text = `the next start creates one for ${algorithm}; tokens issued before will stop working`;
    yield absent("signing keys", `${keys}: ${text}`);
  } else yield absent("signing keys", `${keys} is created by the first start`);
}

async function* checkAccessFile(loaded: LoadedConfiguration): Findings {
  const file = loaded.configuration.auth.access_control_file;
  const isFirstStart = !isThere(file) && !hasKeyFiles(loaded.serviceDirectory);
  if (isFirstStart) yield absent("access file", `${file} is created by the first start`);
  else {
    yield* checkAccess(loaded);
    const warning = sizeWarning(statSync(file).size);
    if (warning !== undefined) yield { warning };
  }
}

async function* checkAccess(loaded: LoadedConfiguration): Findings {
  const { auth } = loaded.configuration;
  const snapshot = await readAccess(loaded);
  const entries = [...snapshot.grants.values()].flatMap((grants) => [...entriesIn(grants)]);
  const counts = `${counted(snapshot.users.size, "user")}, ${counted(entries.length, "grant")}, version ${snapshot.version}`;
  const source = storesAccess(loaded.configuration) ? "in the store" : auth.access_control_file;
  yield ok("access file", `${source} (${counts})`);
  const unknown: string[] = [];
  for (const holder of runAtOnce(holdersWithoutRecord(snapshot))) {
    const name = userOf(holder);
    if (name === undefined) continue;
    const hint = didYouMean(name, snapshot.users.keys());
    unknown.push(`${name} has grants but no user record${hint}`);
  }
  const prefixes = issuerPrefixes(loaded.configuration);
  const rules = [...entries, ...snapshot.boundaries];
  const holders = new Set([
    ...rules.flatMap(({ holder, approvers = [] }) => [holder ?? [], ...approvers].flat()),
    ...snapshot.groups.values().flatMap(({ members }) => members.map(userHolder)),
    ...snapshot.users.values().map(({ sameAs, username }) => userHolder(sameAs ?? username)),
  ]);
  for (const holder of holders) {
    const prefix = prefixWithColon(groupOf(holder) ?? holderText(holder)).slice(0, -1);
    if (prefix === "" || prefixes.includes(prefix)) continue;
    const name = holderName(holder);
    unknown.push(`the access file names ${name}, but no issuer has the prefix ${prefix}`);
  }
  yield* firstWarnings(unknown);
  const warning = runAtOnce(administratorWarning(snapshot, loaded.configuration));
  if (warning !== undefined) yield { warning };
  yield* firstWarnings(runAtOnce(lintAccess(snapshot, questionSetting(loaded.configuration))));
  const named = [
    ...entries.map(
      (grant) =>
        [`the entry of ${holderName(grant.holder)} for ${describePlace(grant)}`, grant] as const,
    ),
    ...snapshot.boundaries.map((one) => [`the boundary ${boundaryName(one)}`, one] as const),
  ];
  yield* firstWarnings(await missingNames(loaded, snapshot, named));
  for (const { named, database, users } of findCaseConflicts(snapshot, knownDatabases(loaded)())) {
    const also = users.length === 0 ? "" : `, also to ${users.join(", ")}`;
    const warning = `the access file names ${named}, but the database is called ${database}; it is denied to everyone${also}`;
    yield { warning };
  }
}

const MOST_WARNINGS = 50;

function* firstWarnings(warnings: readonly string[]) {
  for (const warning of warnings.slice(0, MOST_WARNINGS)) yield { warning };
  const more = warnings.length - MOST_WARNINGS;
  if (more > 0) yield { warning: `and ${more} more` };
}

async function* checkRevocations(loaded: LoadedConfiguration): Findings {
  const file = loaded.configuration.auth.revocations_file;
  if (isThere(file)) {
    const { count } = await (await revocationStore(loaded)).read();
    yield ok("revocations", `${file} (${count})`);
  } else yield absent("revocations", `${file} is created by the first revocation`);
}

async function* checkCertificate({ configuration }: LoadedConfiguration): Findings {
  const { certificate, key } = configuration.server.tls;
  if (certificate === undefined || key === undefined) return;
  const checkRead = configuration.auth.check_permissions;
  const { names, expires } = await readCertificate({ certificate, key }, checkRead);
  yield ok("certificate", `${certificate} (${names}, until ${expires.toISOString()})`);
  if (expires.getTime() <= Date.now()) yield { warning: "the certificate has expired" };
}

async function* checkTokens(loaded: LoadedConfiguration): Findings {
  const file = tokenFilePath(loaded.serviceDirectory);
  const isStored = loaded.configuration.store.url !== undefined;
  if (!isStored && !isThere(file)) return;
  await (await tokenInventory(loaded)).read();
  // The other checks report what else may be broken.
  const tokens = await issuedTokens(loaded).catch(() => undefined);
  if (tokens === undefined) return;
  if (!isStored) yield ok("issued tokens", `${file} (${tokens.length})`);
  const soon = tokens.filter(expiresSoon).map(({ tokenId, name, username, expiresAt }) => {
    const named = name === undefined ? tokenId : `${tokenId} (${plainly(name)})`;
    return `the token ${named} of ${username} expires at ${formatMoment(expiresAt)}`;
  });
  yield* firstWarnings(soon);
}

/** Yields an error instead of throwing it, so that one run lists everything to fix. */
async function* attempt<Input>(check: (input: Input) => Findings, input: Input): Findings {
  try {
    yield* check(input);
  } catch (error) {
    yield { error };
  }
}

async function* checkAll(options: CommonOptions): Findings {
  const loaded = loadFor(options);
  yield ok("configuration", loaded.file ?? "(none: defaults)");
  for (const { about, sentence } of exposureWarnings(loaded)) {
    yield {
      warning: about.host === undefined ? sentence : `server.host ${about.host}: ${sentence}`,
    };
  }
  const isShared = loaded.configuration.store.url !== undefined;
  const files = [checkKeys, checkAccessFile, checkRevocations, checkTokens];
  for (const check of [checkDatabase, checkCertificate, ...(isShared ? [checkStore] : files)])
    yield* attempt(check, loaded);
  for (const problem of writeProblems(loaded)) yield { error: new Error(problem) };
}

const NAME_WIDTH = 14;

async function check(options: CommonOptions): Promise<void> {
  if (options.json) {
    const found = await Array.fromAsync(attempt(checkAll, options));
    const errors = found.flatMap((one) => ("error" in one ? explain(one.error).split("\n") : []));
    const warnings = found.flatMap((one) => ("warning" in one ? one.warning : []));
    const parts = found.filter((one) => "part" in one);
    printJson({ ok: errors.length === 0, errors, warnings, parts });
    if (errors.length > 0) process.exitCode = FAILURE;
    return;
  }
  for await (const found of attempt(checkAll, options)) {
    if ("error" in found) reportFailure(found.error);
    else if ("warning" in found) warn(found.warning);
    else {
      const { part, state, text } = found;
      print(`${part.padEnd(NAME_WIDTH)} ${state === "ok" ? "ok" : "--"}  ${text}`);
    }
  }
}

const help = `
check --json    check everything that a start reads or has to write, without changing anything
`;

export function configCommand(): Command {
  const commands = defineCommands(help, { check });
  return commandGroup("config", "check the files that the gateway reads", commands);
}
