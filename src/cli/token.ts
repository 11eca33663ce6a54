import { type Command, InvalidArgumentError } from "commander";
import { userHolder } from "../core/access/grant.ts";
import { latestIssue } from "../core/access/record-change.ts";
import { EVERY_DATABASE, isExternalUsername } from "../core/access/roles.ts";
import { epochSeconds } from "../core/base/clock.ts";
import { invocation } from "../core/base/product.ts";
import { Refusal } from "../core/base/refusal.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { allIssuers, type Configuration, LONGEST_TOKEN_SECONDS } from "../core/config/schema.ts";
import { earliestIssue, isOpaque, passwordFingerprint } from "../core/identity/authenticate.ts";
import { loadKeyRing, noteMachineToken } from "../core/identity/key-store.ts";
import { tokenIdPattern } from "../core/identity/revocations.ts";
import {
  createOpaqueToken,
  createTokenAuthority,
  type TokenRequest,
  tokenRole,
} from "../core/identity/token.ts";
import { isTokenName, viewToken } from "../core/identity/token-file.ts";
import type { KnownActivity } from "../core/observe/activity.ts";
import { isDatabaseName } from "../core/query/names.ts";
import {
  type Connection,
  isConnected,
  isTokenUnder,
  listConnections,
} from "../features/oauth/server/connections.ts";
import { findStateIn, stateDirectoryPath } from "../features/oauth/server/state-file.ts";
import {
  issuedTokens,
  keyStore,
  knownActivity,
  namedRefusal,
  naming,
  noteChanges,
  openOperator,
  readAccess,
  revocationStore,
  tokenInventory,
  warnIfUnknown,
} from "./operator.ts";
import {
  atEnd,
  type CommonOptions,
  commandGroup,
  defineCommands,
  loadFor,
  readExpiry,
} from "./options.ts";
import {
  formatMoment,
  momentOrNull,
  plainly,
  print,
  printJson,
  printList,
  UsageError,
} from "./output.ts";

/** Returns undefined if the authorization server has no state. */
async function openState(loaded: LoadedConfiguration) {
  const shared = await openOperator(loaded);
  if (shared !== undefined) return shared.authorization.store;
  const store = findStateIn(stateDirectoryPath(loaded.serviceDirectory));
  atEnd(async () => store?.close());
  return store;
}

/** The apps that users have connected. */
async function listApps(
  loaded: LoadedConfiguration,
  activity: KnownActivity,
  username: string | undefined,
) {
  const access = { snapshot: await readAccess(loaded) };
  const revocations = await (await revocationStore(loaded)).read();
  const store = await openState(loaded);
  const connections = store === undefined ? [] : await listConnections(store, username);
  const connected = connections.filter((one) => isConnected({ access, revocations }, one));
  return connected.map((one) => ({
    username: one.username,
    client: one.clientId,
    app: one.appName,
    database: one.database,
    read_only: one.readOnly,
    allowed: formatMoment(one.allowedAt),
    renewed: momentOrNull(one.renewedAt ?? 0),
    last_use: momentOrNull(activity.of(one.username, one.clientId).use),
    called: one.called,
  }));
}

async function list(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const activity = await knownActivity(loaded);
  const { user } = options;
  const tokens = (await issuedTokens(loaded))
    .filter(({ username }) => user === undefined || username === user)
    .map((token) => viewToken(token, activity.useOfToken(token.tokenId)));
  const apps = await listApps(loaded, activity, user);
  const isEmpty = tokens.length + apps.length === 0;
  if (user !== undefined && isEmpty) warnIfUnknown(await readAccess(loaded), user);
  if (options.json) return printJson({ tokens, apps });
  const tokenHead = ["USERNAME", "TOKEN", "NAME", "DATABASE", "ISSUED", "EXPIRES", "LAST USE"];
  if (tokens.length === 0 && process.stdout.isTTY) print("No tokens are issued.");
  else
    printList(tokens, options, tokenHead, (token) => [
      token.user,
      token.id,
      plainly(token.name ?? "-"),
      token.database,
      token.issued,
      token.expires,
      token.last_used ?? "-",
    ]);
  print("");
  if (apps.length === 0 && process.stdout.isTTY) return print("No apps are connected.");
  const head = ["USERNAME", "CLIENT", "APP", "DATABASE", "MAY", "ALLOWED", "RENEWED", "LAST USE"];
  printList(apps, options, head, ({ username, client, app, ...view }) => [
    username,
    plainly(client),
    app === "" ? "-" : plainly(app),
    view.database,
    view.read_only ? "read" : "change",
    view.allowed,
    view.renewed ?? "-",
    view.last_use ?? "-",
  ]);
}

/** @returns false if no connection is selected */
async function endConnections(
  loaded: LoadedConfiguration,
  isSelected: (one: Connection) => boolean,
) {
  const store = await openState(loaded);
  const selected = store === undefined ? [] : (await listConnections(store)).filter(isSelected);
  for (const { grantId } of selected) await store?.endGrant(grantId);
  const changes = selected.map(({ username: user, clientId: client }) => {
    return { change: "application ended", user, client };
  });
  if (selected.length > 0) await noteChanges(loaded, changes);
  for (const { username, clientId } of selected) {
    print(`Ended the access of client ${plainly(clientId)} for ${username}, and all its tokens.`);
  }
  return selected.length > 0;
}

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;
const accessTokenId = /^[\w-]{43}$/;
/** Header, payload and signature (RFC 7519, section 3). */
const wholeToken = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/**
 * Finds an issued token by its name. Undefined without one.
 *
 * @throws Error with the ids if several tokens have the name
 */
async function findNamed(loaded: LoadedConfiguration, name: string) {
  if (!isTokenName(name)) return undefined;
  const known = (await (await tokenInventory(loaded)).read()).all();
  if (![...known].some((token) => token.name === name)) return undefined;
  const named = (await issuedTokens(loaded)).filter((token) => token.name === name);
  if (named.length < 2) return named[0]?.tokenId;
  const ids = named.map(({ tokenId, username }) => `\n${tokenId} of ${username}`);
  throw new Error(`several tokens are named ${plainly(name)}; give the id of one:${ids.join("")}`);
}

/**
 * Returns every spelling that the id of a token may have. Other forms than our own are accepted only
 * with external issuers: revoking text that is not an id would appear to work and revoke nothing.
 *
 * @throws UsageError without the text, which may be a token
 */
function readTokenId(text: string, configuration: Configuration): readonly string[] {
  if (wholeToken.test(text) || isOpaque(text)) {
    const command = `${invocation} token explain -`;
    throw new UsageError(`this is a token; give only its id, which \`${command}\` shows`);
  }
  const hasIssuers = allIssuers(configuration).length > 0;
  const lowerCased = text.toLowerCase();
  if (uuid.test(lowerCased)) {
    return hasIssuers ? [...new Set([lowerCased, text])] : [lowerCased];
  }
  if (accessTokenId.test(text) || (hasIssuers && tokenIdPattern.test(text))) return [text];
  throw new UsageError(
    `no issued token has this name (\`${invocation} token list\` lists all), and it is no token id; allowed: a UUID such as ` +
      "0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43, or the 43 characters of an MCP access token's id",
  );
}

/** Seconds from the issue for `90d`, otherwise the moment itself. @throws InvalidArgumentError */
function readLifetime(text: string): number | Date {
  const end = readExpiry(text);
  const seconds = Math.ceil((end.getTime() - Date.now()) / 1000);
  if (seconds > LONGEST_TOKEN_SECONDS) throw new InvalidArgumentError("Allowed: at most 366d.");
  return /^\d+[a-z]$/.test(text) ? seconds : end;
}

type IssueOptions = CommonOptions & {
  readonly expires: number | Date;
  readonly name?: string;
  readonly opaque?: true;
};

function readTokenName(text: string): string {
  if (isTokenName(text)) return text;
  throw new InvalidArgumentError(
    "Allowed: 1 to 64 of letters, digits, . _ - @ : / and single spaces, but not the form of a token or an id.",
  );
}

/** Makes a JWT, and notes its end on the key that signs it. */
async function signToken(loaded: LoadedConfiguration, request: TokenRequest) {
  const { auth } = loaded.configuration;
  const keys = await keyStore(loaded);
  const ring = await loadKeyRing(keys, auth.signing_algorithm);
  const signed = await createTokenAuthority(() => ring, auth.issuer).issue(request);
  const { token, claims, kid } = signed;
  await noteMachineToken(keys, kid, claims.expiresAt);
  const { role: _, ...issued } = claims;
  return { token, issued: { ...issued, kid } };
}

async function issue(username: string, options: IssueOptions): Promise<void> {
  const loaded = loadFor(options);
  const { database = EVERY_DATABASE, expires, name } = options;
  if (database !== EVERY_DATABASE && !isDatabaseName(database))
    throw new Refusal("invalid_database");
  const snapshot = await readAccess(loaded);
  const user = snapshot.users.get(username);
  if (user === undefined)
    throw namedRefusal("user_not_found", { holder: userHolder(username), snapshot });
  if (user.disabled)
    throw new Error(`${username} is disabled; run \`${invocation} user enable ${username}\` first`);
  const role = await naming({ holder: userHolder(username), database, snapshot }, async () =>
    tokenRole(snapshot, username, database),
  );
  const revocations = await (await revocationStore(loaded)).read();
  const request = {
    username,
    database,
    credential: passwordFingerprint(user),
    lifetime: expires,
    notBefore: earliestIssue(revocations, user),
  };
  const { token, issued } = options.opaque
    ? createOpaqueToken(request)
    : await signToken(loaded, { ...request, role });
  await (await tokenInventory(loaded)).add({ ...issued, name });
  const { tokenId, expiresAt } = issued;
  await noteChanges(loaded, [{ change: "token issued", user: username, token: tokenId }]);
  const until = formatMoment(expiresAt);
  const limit = database === EVERY_DATABASE ? "all databases of the user" : database;
  process.stderr.write(`Token ${tokenId} of ${username} for ${limit}, until ${until}.\n`);
  process.stderr.write(`Revoke it with:  ${invocation} token revoke ${tokenId}\n`);
  print(token);
}

async function revoke(written: string | undefined, options: CommonOptions): Promise<void> {
  const { user: username, client } = options;
  if ((written === undefined) === (username === undefined && client === undefined)) {
    throw new UsageError(
      "give either a token id (jti) or a name, or --user <username>, --client <client_id> or both",
    );
  }
  const loaded = loadFor(options);
  const named = written === undefined ? undefined : await findNamed(loaded, written);
  const ids = written === undefined ? [] : readTokenId(named ?? written, loaded.configuration);
  const [tokenId] = ids;
  const revocations = await revocationStore(loaded);
  if (client !== undefined) {
    const isSelected = (one: Connection) =>
      one.clientId === client && (username === undefined || one.username === username);
    if (await endConnections(loaded, isSelected)) return;
    const by = username === undefined ? "" : ` by ${username}`;
    throw new Error(`the client ${plainly(client)} was not connected${by}`);
  } else if (username !== undefined) {
    // Users of an external issuer need no record to have tokens.
    const snapshot = isExternalUsername(username) ? undefined : await readAccess(loaded);
    if (snapshot?.users.has(username) === false) {
      throw namedRefusal("user_not_found", { holder: userHolder(username), snapshot });
    }
    const latest = latestIssue(snapshot?.users.get(username));
    await revocations.revokeUser(username, latest);
    await noteChanges(loaded, [{ change: "tokens revoked", user: username }]);
    print(`Revoked all current tokens of ${username}.`);
  } else if (tokenId !== undefined) {
    // The id does not contain the expiry, so keep the revocation for the longest lifetime.
    const until = epochSeconds() + LONGEST_TOKEN_SECONDS;
    for (const jti of ids) await revocations.revoke({ jti, until });
    await noteChanges(loaded, [{ change: "token revoked", token: tokenId }]);
    print(`Revoked the token ${tokenId}.`);
    // Also revoke all other tokens of the same consent.
    await endConnections(loaded, (connection) => isTokenUnder(connection, tokenId));
  }
}

async function explain(token: string, options: CommonOptions): Promise<void> {
  const { explainToken } = await import("./token-explain.ts");
  await explainToken(token, options);
}

const help = `
explain --json  show whether a token is accepted, its user, groups and entries; it is sent to nobody
  <token>       the token, or - for standard input
issue           print a new token for a user on standard output
  <username>    the user of the token
  --name <name>  a name to recognize the token by
  --database <database>  limit the token to one database
  --opaque      a short token, gh_ and 43 characters, of which only a hash is stored
  --expires <time>  when it expires: 90d, 12h, tomorrow, 2026-12-24, 2026-12-24T18:00:00Z; at most 366d
list --json     list issued tokens, and apps that users have connected
  --user <username>  only those of this user
revoke          revoke a token, all tokens of a user, or the access of an app
  [jti or name]  the token's id, or the name of an issued token; for an MCP token, this ends the app's access as well
  --user <username>  revoke all current tokens of this user
  --client <client_id>  end this app's access for all users, or only for --user
`;

export function tokenCommand(): Command {
  const expires = { parse: readLifetime, fallback: [90 * 86_400, "90d"] } as const;
  const commands = defineCommands(
    help,
    { explain, issue, list, revoke },
    { expires, name: { parse: readTokenName } },
  );
  const description = "issue tokens for machines, and list, explain and revoke tokens";
  return commandGroup("token", description, commands);
}
