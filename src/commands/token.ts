import { type Command, InvalidArgumentError, Option } from "commander";
import { EVERY_DATABASE, isExternalUsername } from "../access/roles.ts";
import { epochSeconds } from "../clock.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { type Configuration, LONGEST_TOKEN_SECONDS } from "../config/schema.ts";
import { credentialOf, earliestIssue } from "../identity/authenticate.ts";
import { loadKeyRing, noteMachineToken } from "../identity/key-store.ts";
import { tokenIdPattern } from "../identity/revocations.ts";
import { createTokenAuthority, tokenRole } from "../identity/token.ts";
import {
  type Connection,
  connectionsOf,
  isConnected,
  isTokenOf,
} from "../oauth/server/connections.ts";
import { findStateIn, stateDirectoryOf } from "../oauth/server/state-file.ts";
import { invocation } from "../product.ts";
import { isPlainName } from "../query/names.ts";
import { Refusal } from "../refusal.ts";
import { loadFor } from "./load.ts";
import {
  activityOf,
  keysOf,
  naming,
  noteChanges,
  readAccess,
  refusalOf,
  revocationsOf,
  storeOf,
} from "./operator.ts";
import { type CommonOptions, commandGroup, readExpiry, subcommand } from "./options.ts";
import { momentOf, momentOrNull, plainly, print, printList, UsageError } from "./output.ts";

/** Returns undefined if the authorization server has no state. */
async function openState(loaded: LoadedConfiguration, opened: AsyncDisposableStack) {
  const shared = await storeOf(loaded);
  if (shared !== undefined) return shared.authorization.store;
  const store = findStateIn(stateDirectoryOf(loaded.serviceDirectory));
  opened.defer(async () => store?.close());
  return store;
}

async function listConnections(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const activity = await activityOf(loaded);
  const snapshot = await readAccess(loaded);
  const revocations = await (await revocationsOf(loaded)).read();
  const context = { snapshot: () => snapshot, revocations };
  await using opened = new AsyncDisposableStack();
  const store = await openState(loaded, opened);
  const connections = store === undefined ? [] : await connectionsOf(store);
  // The apps that have access now, as the gateway would decide.
  const connected = connections.filter((one) => isConnected(context, one));
  const views = connected.map((one) => ({
    username: one.username,
    client: one.clientId,
    app: one.appName,
    database: one.database,
    read_only: one.readOnly,
    allowed: momentOf(one.allowedAt),
    renewed: momentOrNull(one.renewedAt ?? 0),
    last_use: momentOrNull(activity.of(one.username, one.clientId).use),
    called: one.called,
  }));
  if (!options.json && views.length === 0 && process.stdout.isTTY) {
    print("No user has let in an app.");
    return;
  }
  const head = ["USERNAME", "CLIENT", "APP", "DATABASE", "MAY", "ALLOWED", "RENEWED", "LAST USE"];
  printList(views, options, head, ({ username, client, app, ...view }) => [
    ...[username, plainly(client), app === "" ? "-" : plainly(app), view.database],
    ...[view.read_only ? "read" : "change", view.allowed, view.renewed ?? "-"],
    view.last_use ?? "-",
  ]);
}

/** Ends the access of applications. @returns whether there was any */
async function endConnections(loaded: LoadedConfiguration, isMeant: (one: Connection) => boolean) {
  await using opened = new AsyncDisposableStack();
  const store = await openState(loaded, opened);
  const meant = store === undefined ? [] : (await connectionsOf(store)).filter(isMeant);
  for (const { grantId } of meant) await store?.endGrant(grantId);
  const change = "application ended";
  const changes = meant.map(({ username: user, clientId: client }) => ({ change, user, client }));
  if (meant.length > 0) await noteChanges(loaded, changes);
  for (const { username, clientId } of meant) {
    const client = plainly(clientId);
    print(`Ended what ${username} has allowed the client ${client}, with every token of it.`);
  }
  return meant.length > 0;
}

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;
const accessTokenId = /^[\w-]{43}$/;
/** Header, payload and signature (RFC 7519, section 3). */
const wholeToken = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/**
 * Parses the id of a token and returns every spelling it may have. Ids of other forms than our own
 * are accepted only with external issuers: revoking a text that is not an id would appear to work
 * and revoke nothing.
 *
 * @throws UsageError, which never repeats the text: it may be a token
 */
function readTokenId(text: string, { mcp }: Configuration): readonly string[] {
  if (wholeToken.test(text)) {
    throw new UsageError("that is a whole token: give its id, the jti in it, not the token itself");
  }
  const hasIssuers = mcp.authorization_servers.length > 0;
  const lowerCased = text.toLowerCase();
  if (uuid.test(lowerCased)) {
    return hasIssuers ? [...new Set([lowerCased, text])] : [lowerCased];
  }
  if (accessTokenId.test(text) || (hasIssuers && tokenIdPattern.test(text))) return [text];
  throw new UsageError(
    "that is no token's id; allowed: a UUID such as 0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43, " +
      "or the 43 characters that name an access token for MCP",
  );
}

/** Seconds from the issue for `90d`, otherwise the moment itself. @throws InvalidArgumentError */
function readLifetime(text: string): number | Date {
  const end = readExpiry(text);
  const seconds = Math.ceil((end.getTime() - Date.now()) / 1000);
  if (seconds > LONGEST_TOKEN_SECONDS) throw new InvalidArgumentError("allowed: at most 366d");
  return /^\d+[a-z]$/.test(text) ? seconds : end;
}

type IssueOptions = CommonOptions & { readonly expires: number | Date };

async function issue(username: string, options: IssueOptions): Promise<void> {
  const loaded = loadFor(options);
  const { auth } = loaded.configuration;
  const { database = EVERY_DATABASE, expires } = options;
  if (database !== EVERY_DATABASE && !isPlainName(database)) throw new Refusal("invalid_database");
  const snapshot = await readAccess(loaded);
  const user = snapshot.users.get(username);
  if (user === undefined) throw refusalOf("user_not_found", { username, snapshot });
  if (user.disabled) throw new Error(`${username} is disabled: enable it first`);
  const role = await naming({ username, database, snapshot }, () =>
    tokenRole(snapshot, username, database),
  );
  const keys = await keysOf(loaded);
  const ring = await loadKeyRing(keys, auth.signing_algorithm);
  const revocations = await (await revocationsOf(loaded)).read();
  const { token, claims } = await createTokenAuthority(() => ring, auth.issuer).issue({
    username,
    database,
    role,
    credential: credentialOf(user),
    lifetime: expires,
    notBefore: earliestIssue(revocations, user),
  });
  await noteMachineToken(keys, ring.signer.kid, claims.expiresAt);
  await noteChanges(loaded, [{ change: "token issued", user: username, token: claims.tokenId }]);
  const until = momentOf(claims.expiresAt);
  const limit = database === EVERY_DATABASE ? "every database that its grants open" : database;
  process.stderr.write(`Token ${claims.tokenId} of ${username} for ${limit}, until ${until}.\n`);
  process.stderr.write(`Revoke it with:  ${invocation} token revoke ${claims.tokenId}\n`);
  print(token);
}

async function revokeTokens(written: string | undefined, options: CommonOptions): Promise<void> {
  const { user: username, client } = options;
  if ((written === undefined) === (username === undefined && client === undefined)) {
    throw new UsageError(
      "give either the id of a token (its jti), or --user <username>, --client <client_id> or both",
    );
  }
  const loaded = loadFor(options);
  const ids = written === undefined ? [] : readTokenId(written, loaded.configuration);
  const [tokenId] = ids;
  const revocations = await revocationsOf(loaded);
  if (client !== undefined) {
    const isMeant = (one: Connection) =>
      one.clientId === client && (username === undefined || one.username === username);
    const whose = username === undefined ? "nobody has" : `${username} has not`;
    if (await endConnections(loaded, isMeant)) return;
    throw new Error(`${whose} let in the client ${plainly(client)}`);
  } else if (username !== undefined) {
    // Users of an external issuer need no record to have tokens.
    const snapshot = isExternalUsername(username) ? undefined : await readAccess(loaded);
    if (snapshot?.users.has(username) === false) {
      throw refusalOf("user_not_found", { username, snapshot });
    }
    await revocations.revokeUser(username);
    await noteChanges(loaded, [{ change: "tokens revoked", user: username }]);
    print(`Revoked every token that ${username} has by now.`);
  } else if (tokenId !== undefined) {
    // The id does not tell the expiry, so the revocation is kept for the longest lifetime.
    const expiresAt = epochSeconds() + LONGEST_TOKEN_SECONDS;
    for (const id of ids) await revocations.revokeToken({ tokenId: id, expiresAt });
    await noteChanges(loaded, [{ change: "token revoked", token: tokenId }]);
    print(`Revoked the token ${tokenId}.`);
    // All tokens from the same consent.
    await endConnections(loaded, (connection) => isTokenOf(connection, tokenId));
  }
}

export function tokenCommand(): Command {
  const token = commandGroup(
    "token",
    "issue tokens for machines, list the apps that users have let in, and revoke tokens",
  );
  subcommand(token, "issue")
    .description("print a token of a user on standard output")
    .argument("<username>", "whose token it is")
    .option("--database <database>", "limit it to one database")
    .addOption(
      new Option(
        "--expires <time>",
        "when it ends: 90d, 12h, tomorrow, 2026-12-24, 2026-12-24T18:00:00Z; at most 366d",
      )
        .argParser(readLifetime)
        .default(90 * 86_400, "90d"),
    )
    .action(issue);
  subcommand(token, "list")
    .description("list the apps that users have let in, and what these may do")
    .option("--json", "as JSON")
    .action(listConnections);
  subcommand(token, "revoke")
    .description("revoke one token, all of a user, or what an app was allowed")
    .argument("[jti]", "the token's id; with one for MCP, all that came of the same consent ends")
    .option("--user <username>", "every token that this user has by now")
    .option("--client <client_id>", "all that this app was allowed, by everybody or by --user")
    .action(revokeTokens);
  return token;
}
