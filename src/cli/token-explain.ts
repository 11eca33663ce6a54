import path from "node:path";
import { text } from "node:stream/consumers";
import { decodeJwt, decodeProtectedHeader } from "jose";
import { pino } from "pino";
import { entriesIn } from "../core/access/entries.ts";
import { describePlace, groupOf, type Subject } from "../core/access/grant.ts";
import { effectiveGrants } from "../core/access/groups.ts";
import type { Snapshot } from "../core/access/snapshot.ts";
import { Refusal } from "../core/base/refusal.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import {
  allIssuers,
  basePathOf,
  type Configuration,
  hasEmbeddedServer,
} from "../core/config/schema.ts";
import {
  type Authenticated,
  claimedIssuer,
  claimsLogin,
  externalCaller,
  identify,
  isOpaque,
  tokenCaller,
} from "../core/identity/authenticate.ts";
import { keyFilesIn } from "../core/identity/key-file.ts";
import { loadKeyRing } from "../core/identity/key-store.ts";
import type { Revocations } from "../core/identity/revocations.ts";
import { parseSignIn } from "../core/identity/sign-in.ts";
import { createTokenAuthority } from "../core/identity/token.ts";
import { Issuers } from "../features/issuers/issuers.ts";
import { recordedSignIn } from "../features/oauth/client/sign-ins.ts";
import { mcpResources, SIGNING_ALGORITHM } from "../features/oauth/server/protocol.ts";
import { findStateIn, stateDirectoryPath } from "../features/oauth/server/state-file.ts";
import { createAccessTokens } from "../features/oauth/server/tokens.ts";
import { keyStore, openOperator, readAccess, revocationStore, tokenInventory } from "./operator.ts";
import { atEnd, type CommonOptions, loadFor } from "./options.ts";
import { FAILURE, formatMoment, plainJson, plainly, print, printJson } from "./output.ts";

type View = Readonly<Record<string, unknown>>;

interface State {
  readonly snapshot: Snapshot;
  readonly revocations: Revocations;
}

/** Header and claims, not verified. */
function viewClaims(token: string): View {
  try {
    const { kid, alg, typ } = decodeProtectedHeader(token);
    return { key: kid, algorithm: alg, type: typ, claims: decodeJwt(token) };
  } catch {
    return { claims: undefined };
  }
}

/** The entries in force, merged with those of the caller's groups. */
function entriesFor(snapshot: Snapshot, subject: Subject): View[] {
  return Array.from(entriesIn(effectiveGrants(snapshot, subject)), (grant) => ({
    entry: describePlace(grant),
    role: grant.role,
    group: groupOf(grant.holder),
  }));
}

function viewCaller({ snapshot }: State, caller: Omit<Authenticated, "identify">): View {
  const { subject, tokenId, expiresAt, client, droppedGroups } = caller;
  return {
    user: subject.username,
    groups: subject.groups,
    ignored_groups: droppedGroups,
    attributes: subject.attributes && Object.fromEntries(subject.attributes),
    client,
    token: tokenId,
    database: subject.tokenDatabase,
    expires: formatMoment(expiresAt),
    entries: entriesFor(snapshot, subject),
  };
}

function assumedUrl(configuration: Configuration): string {
  const { server } = configuration;
  const scheme = server.tls.certificate === undefined ? "http" : "https";
  const host = server.host.includes(":") ? `[${server.host}]` : server.host;
  const url = server.public_url || `${scheme}://${host}:${server.port}`;
  return url + basePathOf(configuration);
}

async function explainLogin(loaded: LoadedConfiguration, state: State, token: string) {
  const { auth } = loaded.configuration;
  const ring = await loadKeyRing(await keyStore(loaded), auth.signing_algorithm);
  const authority = createTokenAuthority(() => ring, auth.issuer);
  const { snapshot, revocations } = state;
  return viewCaller(state, tokenCaller(snapshot, revocations, authority.verify(token)));
}

async function explainOpaque(loaded: LoadedConfiguration, state: State, token: string) {
  const issued = (await (await tokenInventory(loaded)).read()).find(token);
  if (issued === undefined) throw new Refusal("token_invalid", { detail: "unknown_opaque_token" });
  const { name } = issued;
  try {
    return { name, ...viewCaller(state, tokenCaller(state.snapshot, state.revocations, issued)) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    // To revoke a leaked token, an operator needs its id.
    return { name, ...viewRefusal(error) };
  }
}

/** An access token of the embedded authorization server. */
async function explainGranted(loaded: LoadedConfiguration, state: State, token: string) {
  const issuer = assumedUrl(loaded.configuration);
  const directory = stateDirectoryPath(loaded.serviceDirectory);
  const shared = (await openOperator(loaded))?.authorization;
  const store = shared?.store ?? findStateIn(directory);
  const keys = shared?.keys ?? keyFilesIn(path.join(directory, "keys"), { checkRead: true });
  if (store === undefined || (await keys.names()).length === 0) {
    throw new Refusal("token_invalid", { detail: "unknown_key" });
  }
  if (shared === undefined) atEnd(() => store.close());
  const ring = await loadKeyRing(keys, SIGNING_ALGORITHM);
  const log = pino({ level: "silent" });
  const granted = createAccessTokens({ issuer, store, log }, ring).verify(token);
  const { username, credential, database: tokenDatabase, readOnly, scopes } = granted;
  const { snapshot, revocations } = state;
  identify(snapshot, revocations, granted);
  const isSignIn = parseSignIn(credential) !== undefined;
  const known = allIssuers(loaded.configuration);
  const signedIn = isSignIn ? await recordedSignIn(store, known, credential) : undefined;
  const view = viewCaller(state, {
    subject: { username, ...signedIn?.subject, tokenDatabase },
    tokenId: granted.tokenId,
    expiresAt: granted.expiresAt,
    client: granted.clientId,
    droppedGroups: signedIn?.droppedGroups ?? 0,
  });
  const more = { read_only: readOnly, scopes: [...scopes] };
  return { opens: ["mcp"], ...view, ignored_group_names: signedIn?.ignoredGroups, ...more };
}

/** Fetches keys as the gateway does, but does not send the token anywhere. */
async function explainExternal(configuration: Configuration, state: State, token: string) {
  const all = allIssuers(configuration);
  const name = claimedIssuer(token);
  const settings = all.find(
    ({ issuer, introspection }) =>
      issuer === name || (name === undefined && introspection !== undefined),
  );
  if (settings === undefined) {
    const detail = name === undefined ? "no_jwt" : "unknown_issuer";
    throw new Refusal("token_invalid", { detail });
  }
  const { issuer, prefix, opens, introspection } = settings;
  const about = { issuer, prefix, opens };
  if (introspection !== undefined && (introspection.always || name === undefined)) {
    const kind = name === undefined ? "an opaque token" : "a token of an issuer with `always`";
    const note = `${kind}: only introspection by ${issuer} would tell, which was not asked`;
    return { ...about, verdict: "unknown", asks: introspection.url, note };
  }
  const resource = mcpResources(assumedUrl(configuration));
  const log = pino({ level: "silent" });
  const issuers = new Issuers([settings], () => resource, log);
  atEnd(async () => issuers.close());
  const [door = "query"] = opens;
  const external = await issuers.verify(token, door);
  const { droppedGroups, ignoredGroups: ignored_group_names } = external;
  const more = { ignored_group_names, scopes: [...external.scopes] };
  try {
    const caller = externalCaller(state.snapshot, state.revocations, external);
    return { ...about, ...viewCaller(state, caller), ...more };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    // An operator who gives the first grant needs the names of the groups.
    const known = { groups: external.groups, ignored_groups: droppedGroups };
    return { ...about, ...viewRefusal(error), ...known, ...more };
  }
}

function viewRefusal({ code, message, detail, token }: Refusal) {
  const { tokenId, ...about } = token ?? {};
  return { verdict: "refused", code, message, detail, ...about, token: tokenId };
}

async function explain(
  loaded: LoadedConfiguration,
  state: State,
  token: string,
): Promise<View & { readonly verdict: string }> {
  const { configuration } = loaded;
  const issuer = claimedIssuer(token);
  const accepted = { verdict: "accepted" };
  try {
    if (isOpaque(token)) {
      const { issuer } = configuration.auth;
      return {
        ...accepted,
        issuer,
        type: "opaque",
        ...(await explainOpaque(loaded, state, token)),
      };
    }
    if (claimsLogin(token, configuration.auth.issuer)) {
      return { ...accepted, issuer, ...(await explainLogin(loaded, state, token)) };
    }
    if (hasEmbeddedServer(configuration) && issuer === assumedUrl(configuration)) {
      return { ...accepted, issuer, ...(await explainGranted(loaded, state, token)) };
    }
    return { ...accepted, ...(await explainExternal(configuration, state, token)) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const issuers = allIssuers(configuration).map((one) => one.issuer);
    const notes: Readonly<Record<string, string>> = {
      unknown_opaque_token: "no token of the inventory; it may be misspelled",
      no_jwt: "an opaque token, and no issuer has introspection",
      unknown_issuer: `the configured issuers are ${issuers.join(", ") || "none"}`,
    };
    return { ...viewRefusal(error), note: notes[error.detail ?? ""] };
  }
}

function inWords(value: unknown): string {
  if (typeof value === "string") return plainly(value);
  const isList = Array.isArray(value) && value.every((one) => typeof one === "string");
  return isList ? value.map(plainly).join(", ") || "none" : plainJson(value);
}

function printView({ claims, entries, ...facts }: View): void {
  for (const [name, value] of Object.entries(facts)) {
    if (value !== undefined) print(`${name}: ${inWords(value)}`);
  }
  for (const { entry, role, group } of Array.isArray(entries) ? entries : []) {
    print(`entry: ${role} on ${entry}${group === undefined ? "" : ` (group ${group})`}`);
  }
  if (typeof claims !== "object" || claims === null) return;
  for (const [name, value] of Object.entries(claims)) {
    print(`claim ${plainly(name)}: ${inWords(value)}`);
  }
}

/** @param written the token, or `-` for standard input */
export async function explainToken(written: string, options: CommonOptions): Promise<void> {
  const token = (written === "-" ? await text(process.stdin) : written).trim();
  const loaded = loadFor(options);
  const snapshot = await readAccess(loaded);
  const revocations = await (await revocationStore(loaded)).read();
  const view = {
    ...(await explain(loaded, { snapshot, revocations }, token)),
    ...viewClaims(token),
  };
  if (options.json) printJson(view);
  else printView(view);
  if (view.verdict === "refused") process.exitCode = FAILURE;
}
