import { strictObject, z } from "zod";
import { memoizeLast } from "../base/memoize.ts";
import { fieldNames, operationKeys } from "../query/grammar.ts";
import { plainNameRule, wholePlainName } from "../query/names.ts";
import { permissionClasses } from "../query/permissions.ts";
import {
  DEFAULT_POOL_SIZE,
  engineOver,
  isAddressOrNetwork,
  isAppScheme,
  isConfiguredRedirect,
  isHost,
  isHttpsHost,
  isIssuer,
  isLoopback,
  isMcpUrl,
  isOrigin,
  isRedirectUri,
  isServerUrl,
  isUnspecified,
  type ListenAddress,
  parseListenAddress,
} from "./addresses.ts";
import {
  credentialKeys,
  distinct,
  filePath,
  flag,
  foldHeader,
  GIBIBYTE,
  isTokenHeader,
  key,
  listenAddress,
  live,
  MEBIBYTE,
  publicUrl,
  refuse,
  refuseRepeats,
  refuseServerUrl,
  refuseTwoCredentials,
  seconds,
  section,
  text,
  type ValueAtPath,
  wholeNumber,
} from "./kinds.ts";
import { refuseOwnPaths, routes } from "./routes.ts";
import { upstream } from "./upstream.ts";

/** 366 days. */
export const LONGEST_TOKEN_SECONDS = 31_622_400;
/** Argon2 needs this many KiB for every lane (RFC 9106, section 3.1). */
const KIB_PER_LANE = 8;

const databaseName = text(plainNameRule, wholePlainName);
const tokenClaim = text("1 to 255 visible ASCII characters", /^[!-~]{1,255}$/);

export const serviceFiles = {
  access_control_file: "access_control.toml",
  revocations_file: "revocations",
} as const;

const auth = section("Tokens, passwords, and the files that control access.", {
  enabled: flag(true, "Require callers to have a token. If false, everyone may query everything."),
  insecure_allow_remote: flag(
    false,
    "Allow enabled = false on a host that other machines can reach.",
  ),
  check_permissions: flag(true, "Refuse to start if others may read secret files."),
  token_expiration: wholeNumber(1, LONGEST_TOKEN_SECONDS)
    .default(86_400)
    .describe("Lifetime of login tokens, in seconds."),
  signing_algorithm: z
    .enum(["ES256", "EdDSA", "RS256", "HS256"])
    .default("ES256")
    .describe("Algorithm of new signing keys."),
  argon2_memory_cost: wholeNumber(KIB_PER_LANE, 1_048_576)
    .default(65_536)
    .describe("Memory for one password hash, in KiB. At least 8 times argon2_parallelism."),
  argon2_time_cost: wholeNumber(1, 64).default(3).describe("Number of passes over that memory."),
  argon2_parallelism: wholeNumber(1, 64)
    .default(4)
    .describe("Number of lanes of one password hash."),
  passwords: flag(
    true,
    "Let users log in with passwords. If false, users sign in through a provider, which needs an issuer with `login`.",
  ),
  refuse_common_passwords: flag(
    false,
    "Refuse new passwords that are on a list of common passwords.",
  ),
  access_control_file: filePath
    .default(serviceFiles.access_control_file)
    .describe("File of users and grants. The bare default name refers to the service directory."),
  revocations_file: filePath
    .default(serviceFiles.revocations_file)
    .describe("File of revoked tokens. The bare default name refers to the service directory."),
  default_database: databaseName
    .default("main")
    .describe("Database on which a new user gets a role if no database is named."),
  issuer: tokenClaim.default("gatehouse").describe("The iss claim of login tokens."),
  accept: key(
    z
      .array(
        text(
          '"bearer", "basic", "apikey", or "header:" and a header name without another meaning, such as "header:x-api-key"',
          (one) =>
            /^(?:bearer|basic|apikey)$/.test(one) ||
            (one.startsWith("header:") && isTokenHeader(one.slice("header:".length))),
        ),
      )
      .min(1)
      .superRefine((kinds, context) => {
        const values = kinds.map((kind, at): ValueAtPath => [kind, [at]]);
        refuseRepeats(context, values, () => "each credential once", foldHeader);
      })
      .default(["bearer"]),
    ["bearer", "basic", "apikey", "header:x-api-key"],
    "Credentials that open /query, /schema, configured routes and presets: a token as `Authorization: Bearer`, as `Authorization: ApiKey` or as the value of a header, or with basic a username and password, or any username and a token. Only bearer opens /api and /mcp.",
  ),
  max_failures_per_user_and_address: wholeNumber(1, 1_000_000)
    .default(10)
    .meta(
      live("Failed logins allowed for one user from one address within failure_window; then 429."),
    ),
  max_failures_per_address: wholeNumber(1, 1_000_000)
    .default(100)
    .meta(live("Failed logins allowed from one address within failure_window; then 429.")),
  failure_window: seconds
    .default(900)
    .meta(live("Period over which failed logins are counted, in seconds.")),
}).superRefine((auth, context) => {
  const least = KIB_PER_LANE * auth.argon2_parallelism;
  if (auth.argon2_memory_cost >= least) return;
  refuse(context, ["argon2_memory_cost"], `at least 8 * argon2_parallelism, which is ${least}`);
});

const toolName = text("1 to 128 visible ASCII characters", /^[!-~]{1,128}$/);
const plainName = text("1 to 63 letters, digits, - and _", wholePlainName);

const claimName = text("the name of a claim", /^[!-~]{1,128}$/);
const issuerKeys = {
  issuer: key(
    text("an https:// URL without query and fragment, or http:// on loopback", isIssuer),
    "https://login.example.com/realms/staff",
    "Issuer of accepted tokens, spelled exactly as in its tokens and metadata.",
  ),
  prefix: key(
    text("1 to 63 letters, digits, - and _, not group", /^(?!group$)[A-Za-z0-9_-]{1,63}$/),
    "staff",
    "Prefix of its users in the access file: `prefix:username`. Different for every issuer.",
  ),
  username_claim: claimName
    .default("sub")
    .describe("Claim that contains the username. `email` counts only if `email_verified` is true."),
};

const authorizationServer = strictObject({
  ...issuerKeys,
  audience: key(
    tokenClaim.optional(),
    "api://gatehouse",
    "Value of `aud` in its tokens, if it cannot be the resource. If absent: the public URL of /mcp.",
  ),
});

const confidentialUrl = text(
  "an https:// URL without credentials and fragment, or http:// on loopback",
  isRedirectUri,
);
const literalClaim = z.union([z.string(), z.int(), z.boolean()]);

/** RFC 6749, appendix A.1. */
const clientId = text("1 to 255 printable ASCII characters", /^[ -~]{1,255}$/);

const introspection = strictObject({
  url: key(
    confidentialUrl,
    "https://login.example.com/realms/staff/protocol/openid-connect/token/introspect",
    "Introspection endpoint of the issuer (RFC 7662).",
  ),
  client_id: key(clientId, "gatehouse", "Client of the gateway at the issuer."),
  client_secret_file: key(
    filePath,
    "/run/secrets/introspection",
    "File with the secret of that client, read at each request. Others may not read it.",
  ),
  cache: wholeNumber(0, 300)
    .default(30)
    .describe("Seconds for which a positive answer counts, at most until the token expires."),
  always: flag(
    false,
    "Ask for every token of the issuer. If false: only for tokens that are not JWTs.",
  ),
});

const login = strictObject({
  client_id: key(clientId, "gatehouse", "Client of the gateway at the provider."),
  client_secret_file: key(
    filePath.optional(),
    "/run/secrets/provider",
    "File with the secret of that client, read at each request. Others may not read it.",
  ),
  private_key_file: key(
    filePath.optional(),
    "/run/secrets/provider-key.pem",
    "File with a private key, in PEM or JWK form, with which the client authenticates instead of a secret (`private_key_jwt`). Read at each request.",
  ),
  label: key(
    text("1 to 100 characters", /^\P{Cc}{1,100}$/u),
    "Sign in with Example",
    "Text of the button.",
  ),
  scopes: z
    .array(text("a scope without spaces", /^[!#-[\]-~]{1,255}$/))
    .default(["openid", "profile"])
    .describe(
      "Scopes to ask for, besides `openid`. Some providers need `offline_access` for a refresh token.",
    ),
  recheck: wholeNumber(1, 86_400)
    .default(600)
    .describe(
      "Seconds of use after which the groups are asked for again. It needs a refresh token; without one, a sign-in lasts an hour.",
    ),
}).superRefine(({ client_secret_file: secret, private_key_file: privateKey }, context) => {
  if ((secret === undefined) !== (privateKey === undefined)) return;
  refuse(context, ["client_secret_file"], "either client_secret_file or private_key_file");
});

const doors = ["mcp", "query"] as const;
export type Door = (typeof doors)[number];

const issuer = strictObject({
  ...issuerKeys,
  opens: key(
    z.array(z.enum(doors)).min(1),
    ["mcp", "query"],
    'What its tokens open: "mcp" is /mcp; "query" is /query, /schema, /api, /logout and configured routes.',
  ),
  audience: key(
    z
      .union([tokenClaim, z.array(tokenClaim).min(1)])
      .meta({ title: "1 to 255 visible ASCII characters, or a non-empty array of such texts" })
      .optional(),
    "gatehouse",
    'Value of `aud` in its tokens, or several, of which a token has one. Required for "query". If absent: the public URL of /mcp.',
  ),
  groups_claim: key(
    z
      .union([claimName, z.tuple([claimName])])
      .meta({ title: "the name of a claim, a path with dots, or an array of one name with dots" })
      .optional(),
    "realm_access.roles",
    "Claim that contains the user's groups. Dots are a path into objects; an array of one text is a name that itself has dots. If absent: tokens have no groups.",
  ),
  groups_claim_optional: flag(
    false,
    "If true, a token without the groups claim belongs to no group: Keycloak and Entra ID leave the claim out for users in no group. If false, the response is 403 `groups_unavailable`.",
  ),
  required_claims: key(
    z
      .record(
        claimName,
        z
          .union([literalClaim, z.array(literalClaim).min(1)])
          .meta({ title: "text, a whole number, true, false, or a non-empty array of them" }),
      )
      .default({}),
    { repository: "acme/app" },
    "Claims that each token must have, with the value, or one of several. One element of a list, or one word of `scope` or `scp`, must match.",
  ),
  attribute_claims: key(
    z
      .record(
        text(
          "letters, digits, _ and -, not username",
          /^(?!username$)[A-Za-z_][A-Za-z0-9_-]{0,63}$/,
        ),
        claimName,
      )
      .default({}),
    { tenant: "tenant_id" },
    "Attributes for row filters, and the claims that contain them. The attribute of a user's record counts first.",
  ),
  default_scopes: z
    .array(z.enum(["mcp:tools", "mcp:resources"]))
    .default([])
    .describe("Scopes at /mcp of tokens that have neither `scope` nor `scp`."),
  jwks_url: key(
    confidentialUrl.optional(),
    "https://login.example.com/keys",
    "URL of the issuer's key set. If absent: as its discovery document says.",
  ),
  jwks_file: key(
    filePath.optional(),
    "/etc/gatehouse/cluster-keys.json",
    "File of the issuer's key set, instead of a URL. It is read again when it changes.",
  ),
  introspection: introspection
    .optional()
    .describe("Where to ask about tokens that the gateway cannot verify itself."),
  login: login
    .optional()
    .describe(
      "Sign-in through this provider, on the pages of the embedded authorization server and in the console.",
    ),
  id_jag: flag(
    false,
    "Accept its identity assertions (ID-JAG, Enterprise-Managed Authorization of MCP) at the token endpoint of the embedded authorization server.",
  ),
}).superRefine(({ opens, audience, jwks_url: url, jwks_file: file }, context) => {
  if (opens.includes("query") && audience === undefined) {
    refuse(context, ["audience"], 'a value, which an issuer that opens "query" needs');
  }
  if (url !== undefined && file !== undefined) {
    refuse(context, ["jwks_file"], "either jwks_url or jwks_file, not both");
  }
});

/** Only one issuer can be asked about a token that does not name its own. */
function refuseTwoIntrospections(
  issuers: z.output<typeof issuer>[],
  context: z.core.$RefinementCtx,
): void {
  const asked = issuers.flatMap(({ introspection, opens }, at) =>
    introspection === undefined
      ? []
      : [...new Set(opens)].map((door): ValueAtPath => [door, [at, "introspection"]]),
  );
  refuseRepeats(context, asked, (door) => `one issuer with introspection that opens "${door}"`);
}

const issuers = z
  .array(issuer)
  .superRefine(distinct("issuer"))
  .superRefine(distinct("prefix"))
  .superRefine(refuseTwoIntrospections)
  .default([])
  .describe("Identity providers and workloads whose tokens are accepted.");

const tool = strictObject({
  name: key(toolName, "run_report", "Exact name of the tool."),
  permission: key(
    z.enum(permissionClasses),
    "SELECT",
    "Right on the database that a caller of the tool needs.",
  ),
  database: key(
    plainName.optional(),
    "main",
    "Database that the tool uses, if it is always the same.",
  ),
  database_argument: key(
    toolName.optional(),
    "database",
    "Argument of the tool that contains the name of the database.",
  ),
}).superRefine(({ database, database_argument: argument }, context) => {
  if ((database === undefined) !== (argument === undefined)) return;
  refuse(context, ["database"], "either database or database_argument");
});

const appScheme = text("a scheme in lower case that browsers do not use", isAppScheme);
const documentHost = text(
  "a host or host:port of https URLs, in lower case and without *",
  isHttpsHost,
);

const client = strictObject({
  client_id: key(toolName, "desktop", "Identifier of the client."),
  client_name: key(
    text("1 to 100 characters", /^\P{Cc}{1,100}$/u),
    "Desktop assistant",
    "Name of the client on the consent page.",
  ),
  redirect_uris: key(
    z
      .array(
        text(
          "https:// URLs, http:// on loopback, or app.scheme:/path, without fragment",
          isConfiguredRedirect,
        ),
      )
      .min(1),
    ["http://127.0.0.1/callback"],
    "URIs that the browser may be redirected to. On loopback, any port is allowed.",
  ),
});

const mcp = section("The Model Context Protocol endpoint.", {
  enabled: flag(true, "Serve /mcp."),
  upstream: key(
    text("an http:// or https:// URL without query and credentials", isMcpUrl).optional(),
    "http://127.0.0.1:9200/mcp",
    "MCP server that /mcp forwards to. If absent: the embedded one, over the database.",
  ),
  ...credentialKeys("the MCP server", "/run/secrets/mcp"),
  forward_last_event_id: flag(
    true,
    "Forward Last-Event-ID to mcp.upstream, so that clients can resume streams. Set it to false for a server that does not keep the events of each session apart, such as one with the Python SDK and an event store.",
  ),
  max_body_bytes: wholeNumber(1024, GIBIBYTE)
    .default(MEBIBYTE)
    .meta(live("Largest message to /mcp, in bytes. A larger one gets 413.")),
  row_limit: wholeNumber(1, 100_000)
    .default(500)
    .meta(live("Maximum number of rows that one call of the embedded server's select returns.")),
  result_bytes: wholeNumber(16 * 1024, 16 * MEBIBYTE)
    .default(MEBIBYTE)
    .meta(
      live(
        "Maximum bytes that one call of the embedded server's tools returns. A longer list is truncated.",
      ),
    ),
  app_schemes: z
    .array(appScheme)
    .default(["cursor", "vscode", "vscode-insiders", "windsurf", "zed"])
    .describe(
      "Schemes without a dot that redirects to native apps may use. Schemes with a dot are always allowed.",
    ),
  registrations_per_hour: wholeNumber(1, 1_000_000)
    .default(200)
    .describe(
      "OAuth clients that may register from one address per hour; then 429. Ten times as many for a reverse proxy that all clients share.",
    ),
  private_client_hosts: key(
    z.array(documentHost).default([]),
    ["apps.corp.example", "tools.corp.example:8443"],
    "Hosts whose client metadata documents are fetched even if their addresses are private.",
  ),
  tools: z
    .array(tool)
    .superRefine(distinct("name"))
    .default([])
    .meta(live("Tools of mcp.upstream that may be called. All others are denied.")),
  authorization_servers: z
    .array(authorizationServer)
    .superRefine(distinct("issuer"))
    .superRefine(distinct("prefix"))
    .default([])
    .describe('The same as [[issuers]] with opens = ["mcp"].'),
  clients: z
    .array(client)
    .superRefine(distinct("client_id"))
    .default([])
    .describe("Clients that the embedded authorization server knows without registration."),
}).superRefine(refuseTwoCredentials);

const takenOperations = new Set(operationKeys.map(fold));
const takenFields = new Set([...operationKeys, ...fieldNames].map(fold));

const fieldName = text(
  "1 to 63 ASCII letters, digits and _, not a name of the query grammar",
  (name) => /^\w{1,63}$/.test(name) && isFree(name, takenFields),
);
const operationName = text(
  "a letter and up to 62 letters and digits, not a name of the query grammar",
  (name) => /^[A-Za-z][A-Za-z0-9]{0,62}$/.test(name) && isFree(name, takenOperations),
);
const permission = z.enum(["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP"]);

/** An upstream may treat `Database`, `data_base` and `database` as the same name. */
function fold(name: string): string {
  return name.toLowerCase().replaceAll("_", "");
}

/** Also refuses names of `Object.prototype`, since a lookup would find them without an entry. */
function isFree(name: string, taken: ReadonlySet<string>): boolean {
  return !taken.has(fold(name)) && !(name in Object.prototype);
}

const eachNameOnce = (earlier: string) => `each name once, and ${earlier} is already there`;

const query = section("Level of the query grammar, and operations and fields beyond it.", {
  level: key(
    z.enum(["core", "full"]).optional(),
    "full",
    'Level of the query grammar that is accepted. If absent: "full" for the engine, "core" for ' +
      "another upstream, since one that ignores what it does not know would give wrong results.",
  ),
  extra_fields: key(
    z
      .array(fieldName)
      .superRefine((names, context) => {
        const values = names.map((name, at): ValueAtPath => [name, [at]]);
        refuseRepeats(context, values, eachNameOnce, fold);
      })
      .default([]),
    ["hint"],
    "Additional fields that every operation may contain, with any value.",
  ),
  operations: key(
    z
      .record(operationName, permission)
      .superRefine((operations, context) => {
        const values = Object.keys(operations).map((name): ValueAtPath => [name, [name]]);
        refuseRepeats(context, values, eachNameOnce, fold);
      })
      .default({}),
    { Truncate: "DELETE" },
    "Additional operations, each with the right that it requires.",
  ),
});

const proxy = text("an IP address or a network such as 10.0.0.0/8", isAddressOrNetwork);
const origin = text(
  "an exact origin such as https://app.example.com, in lower case, without a path or *",
  isOrigin,
);

const tls = section(
  "TLS on server.port (1.2 or later). Both files are reloaded when they change.",
  {
    certificate: key(
      filePath.optional(),
      "fullchain.pem",
      "The server's certificate and those that signed it, in PEM. With key, it turns on TLS on server.port.",
    ),
    key: key(
      filePath.optional(),
      "key.pem",
      "Private key of that certificate, in PEM, without a passphrase.",
    ),
  },
).superRefine(({ certificate, key }, context) => {
  if ((certificate === undefined) === (key === undefined)) return;
  const missing = key === undefined ? "key" : "certificate";
  refuse(context, [missing], "a path, since certificate and key go together");
});

const DEFAULT_BASE_PATH = "/_gatehouse";

const server = section("Address, limits, trusted proxies and allowed origins of the gateway.", {
  host: text("a host name or an IP address", isHost)
    .default("127.0.0.1")
    .describe(
      "Address to listen on. A non-loopback address needs TLS: [server.tls] or a reverse proxy.",
    ),
  port: wholeNumber(0, 65_535).default(8080).describe("Port to listen on. 0: any free port."),
  workers: wholeNumber(0, 64)
    .default(1)
    .describe("Number of worker processes. 0: one for each core."),
  public_url: key(
    publicUrl.default(""),
    "https://gate.example.com",
    "URL at which clients reach the gateway. If empty: http://host:port, or https://host:port with [server.tls].",
  ),
  base_path: key(
    text(
      "nothing, or a path of letters, digits, -, ., _ and ~ without a slash at the end, not under /.well-known",
      /^(?:|(?!\/\.well-known(?:\/|$))(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._~-]+)+)$/,
    ).optional(),
    DEFAULT_BASE_PATH,
    `Path below which the gateway's own paths are, such as /login and /mcp. All other paths but /.well-known are the upstream's. If absent: ${DEFAULT_BASE_PATH} with upstream.preset, else none.`,
  ),
  max_body_bytes: wholeNumber(1, GIBIBYTE)
    .default(10_485_760)
    .meta(live("Largest request body that the gateway reads, in bytes. A larger one gets 413.")),
  max_buffered_bytes: wholeNumber(1, 1024 * GIBIBYTE)
    .default(268_435_456)
    .meta(
      live(
        "Maximum bytes of request bodies and MCP results held at one time; beyond that 503. At least " +
          "max_body_bytes for each worker. Limited to a sixteenth of the memory that the cgroup allows.",
      ),
    ),
  request_timeout: seconds
    .default(30)
    .meta(live("Seconds within which a request must arrive completely.")),
  shutdown_delay: wholeNumber(0, 3600)
    .default(0)
    .describe(
      "Seconds after SIGTERM during which everything is still served, but /readyz returns 503, so " +
        "that a load balancer stops sending requests.",
    ),
  shutdown_grace: seconds
    .default(10)
    .meta(live("Seconds that requests in flight have to finish on SIGTERM.")),
  trusted_proxies: z
    .array(proxy)
    .default([])
    .meta({
      ...live("Proxies whose X-Forwarded-* and X-Request-Id headers are trusted."),
      examples: [["10.0.0.0/8"]],
    }),
  allowed_origins: z
    .array(origin)
    .default([])
    .meta({
      ...live("Browser origins that may call the gateway (CORS)."),
      examples: [["https://app.example.com"]],
    }),
  tls,
}).superRefine((server, context) => {
  const { workers, max_body_bytes: body, max_buffered_bytes: buffered } = server;
  const least = Math.max(1, workers) * body;
  if (buffered >= least) return;
  const rule = workers > 1 ? `max_body_bytes for each of ${workers} workers` : "max_body_bytes";
  refuse(context, ["max_buffered_bytes"], `at least ${rule}, which is ${least}`);
});

const consolePages = section(
  "The console: pages for operators and users, without scripts. Off unless listen is set.",
  {
    listen: key(
      listenAddress.optional(),
      "127.0.0.1:8081",
      "Address of the console, which has its own listener and origin. If absent: no console.",
    ),
    public_url: key(
      publicUrl.default(""),
      "https://console.example.com",
      "URL at which browsers reach the console, through a reverse proxy with TLS. If empty: http:// on the port of listen, only from this machine.",
    ),
  },
).superRefine(({ listen, public_url: url }, context) => {
  if (url.startsWith("http:") && !isLoopback(new URL(url).hostname)) {
    const allowed = "an https:// URL, or one of a loopback address, since passwords go over it";
    refuse(context, ["public_url"], allowed);
  }
  const address = listen === undefined ? undefined : parseListenAddress(listen);
  if (address === undefined || isLoopback(address.host) || url.startsWith("https:")) return;
  const rule =
    "a loopback address, or console.public_url with https://, since passwords go over it";
  refuse(context, ["listen"], rule);
});

export const storeKeyFile = "store.key";

const postgresUrl = text(
  "postgres://user@host:port/database, with a percent-encoded user and password",
  (url) => /^postgres(?:ql)?:/.test(url) && isServerUrl(url),
).superRefine(refuseServerUrl);

const store = section("State that several replicas share, in PostgreSQL.", {
  url: postgresUrl.optional().meta({
    description:
      "PostgreSQL database that several replicas share. If absent: everything is in files of this replica.",
    examples: ["postgres://gatehouse@db.example/gatehouse"],
    writeOnly: true,
  }),
  key_file: filePath
    .default(storeKeyFile)
    .describe(
      "File of keys, the same on every replica. Each line has 32 random bytes in base64url. The first key encrypts secrets in the store, and all keys decrypt them. The bare default name refers to the service directory.",
    ),
  access: z
    .enum(["store", "file"])
    .default("store")
    .describe(
      'Place of users and grants: the store, or access_control_file. With "file", each replica has its own file, which is never written. Everything else is shared in both cases.',
    ),
  max_staleness: wholeNumber(2, 3600)
    .default(10)
    .describe(
      "Seconds for which a replica makes decisions without having reached the store; then 503. If a replica is killed, the next change waits for this time plus 5 seconds.",
    ),
});

const metrics = section("Prometheus metrics.", {
  listen: key(
    listenAddress.optional(),
    "127.0.0.1:9464",
    "Address that serves Prometheus metrics at /metrics, on its own listener. If absent: none.",
  ),
});

const audit = section("The audit log: one line for each decision.", {
  file: key(
    filePath.optional(),
    "audit.log",
    "File that the audit log is appended to. If absent, or /dev/stdout: standard output.",
  ),
});

const approvals = section("Approvals that `require_approval` in the access file requires.", {
  wait: seconds
    .default(600)
    .meta(
      live(
        "Seconds that a query waits for approval, and seconds for which an approval can be used.",
      ),
    ),
  keep: z.int().min(0).max(3650).default(30).meta({
    description:
      "Days for which an approved or denied query is kept, encrypted, for review by approvers and administrators. 0: deleted when decided.",
  }),
  notify: strictObject({
    url: key(
      confidentialUrl.meta({ writeOnly: true }),
      "https://hooks.example.com/approvals",
      "URL to which each new approval is posted as JSON.",
    ),
    secret_file: key(
      filePath,
      "/run/secrets/hook",
      "File with the secret that signs these requests. A newline at its end is ignored. Others may not read it.",
    ),
  })
    .optional()
    .describe("A hook that receives each new approval."),
});

const sections = z.strictObject({
  server,
  auth,
  upstream,
  query,
  routes,
  metrics,
  audit,
  mcp,
  store,
  console: consolePages,
  approvals,
  issuers,
});
type Sections = z.output<typeof sections>;

interface Rule {
  readonly names: readonly (keyof Sections)[];
  check(sections: Sections, context: z.core.$RefinementCtx): void;
}

function between(names: Rule["names"], check: Rule["check"]): Rule {
  return { names, check };
}

/** Rules between sections. Each is checked only if its sections are valid by themselves. */
const rules: readonly Rule[] = [
  between(["server", "upstream", "auth", "mcp", "issuers"], refuseIssuersTwice),
  between(["auth", "issuers"], ({ auth, issuers }, context) => {
    if (auth.passwords || hasLogin({ issuers })) return;
    refuse(context, ["auth", "passwords"], "true, since none of [[issuers]] has login");
  }),
  between(["mcp", "issuers", "upstream"], (configuration, context) => {
    const at = configuration.issuers.findIndex(({ id_jag: isOn }) => isOn);
    if (at === -1 || hasEmbeddedServer(configuration)) return;
    const rule =
      'false, since the embedded authorization server is off: it needs mcp.enabled, and an issuer with login if any opens "mcp"';
    refuse(context, ["issuers", at, "id_jag"], rule);
  }),
  between(["server", "auth"], ({ server, auth }, context) => {
    if (auth.enabled || auth.insecure_allow_remote || isLoopback(server.host)) return;
    const rule = `true, since other machines can reach server.host ${JSON.stringify(server.host)}; to go without authentication set server.host = "127.0.0.1", or accept the risk with auth.insecure_allow_remote = true`;
    refuse(context, ["auth", "enabled"], rule);
  }),
  between(["server", "console"], ({ server, console }, context) => {
    if (console.public_url === "" || console.public_url !== server.public_url) return;
    refuse(context, ["console", "public_url"], "another origin than server.public_url");
  }),
  between(["server", "console", "metrics"], ({ server, console, metrics }, context) => {
    const taken = [{ key: "server.port", host: server.host, port: server.port }];
    for (const [section, { listen }] of Object.entries({ console, metrics })) {
      const address = listen === undefined ? undefined : parseListenAddress(listen);
      if (address === undefined || address.port === 0) continue;
      const other = taken.find((one) => isSamePlace(one, address));
      if (other !== undefined)
        refuse(context, [section, "listen"], `another port than ${other.key}`);
      taken.push({ key: `${section}.listen`, ...address });
    }
  }),
  between(["server", "upstream"], ({ server, upstream }, context) => {
    const { workers } = server;
    const engine = engineOver(upstream);
    if (engine === "sqlite" && workers > 1) {
      const allowed =
        "1 over SQLite, whose files one process writes; for more workers use PostgreSQL or MySQL";
      refuse(context, ["server", "workers"], allowed);
    }
    const allowed = `at least one for each of server.workers, which is ${workers}`;
    if (engine === "server" && (upstream.pool_size ?? DEFAULT_POOL_SIZE) < workers) {
      refuse(context, ["upstream", "pool_size"], allowed);
    }
    if (upstream.connections < workers) refuse(context, ["upstream", "connections"], allowed);
  }),
  between(["server", "upstream"], ({ server, upstream }, context) => {
    if (server.base_path !== "" || upstream.preset === undefined) return;
    const rule = "a path, since all others are the upstream's with upstream.preset";
    refuse(context, ["server", "base_path"], rule);
  }),
  between(["routes", "upstream"], ({ routes, upstream }, context) => {
    if (routes.length === 0 || upstream.preset === undefined) return;
    refuse(context, ["routes"], "none, since upstream.preset lists what passes");
  }),
  between(["server", "upstream", "routes"], (configuration, context) => {
    refuseOwnPaths(configuration.routes, basePathOf(configuration), context);
  }),
  between(["auth", "upstream", "routes"], refuseWithheldHeaders),
];

/** The schema of gateway.toml, from which the reference in the docs is generated. */
export const configurationSchema = rules.reduce(
  (schema, { names, check }) =>
    schema.superRefine(check, {
      when: ({ issues }) =>
        !issues.some(({ path: [name] = [] }) => names.some((one) => one === name)),
    }),
  sections,
);

/** The path below which the gateway's own paths are. Empty if they are at the root. */
export function basePathOf({
  server,
  upstream,
}: {
  readonly server: { readonly base_path?: string | undefined };
  readonly upstream: { readonly preset?: string | undefined };
}): string {
  return server.base_path ?? (upstream.preset === undefined ? "" : DEFAULT_BASE_PATH);
}

interface HeaderSections {
  readonly auth: { readonly accept: readonly string[] };
  readonly upstream: {
    readonly credential?: { readonly header: string } | undefined;
    readonly forward_headers: readonly string[];
  };
}

/** Request headers that `auth.accept` lists for tokens, in lower case. */
export const tokenHeaders: (accept: readonly string[]) => readonly string[] = memoizeLast(
  (accept) =>
    accept
      .filter((one) => one.startsWith("header:"))
      .map((one) => one.slice("header:".length).toLowerCase()),
);

/** Headers of clients that are never forwarded, since they are credentials, as `foldHeader` does. */
export function withheldHeaders({ auth, upstream }: HeaderSections): ReadonlySet<string> {
  const names = [...tokenHeaders(auth.accept), upstream.credential?.header ?? ""];
  return new Set(names.filter((name) => name !== "").map(foldHeader));
}

type RouteHeaders = z.output<typeof routes>[number];

/** Refuses to forward headers that are never forwarded. */
function refuseWithheldHeaders(
  { routes, ...sections }: HeaderSections & { readonly routes: readonly RouteHeaders[] },
  context: z.core.$RefinementCtx,
): void {
  const withheld = withheldHeaders(sections);
  const refuseName = (name: string, path: PropertyKey[]) => {
    if (!withheld.has(foldHeader(name))) return;
    refuse(context, path, "no header of auth.accept or upstream.credential");
  };
  const refuseIn = (names: readonly string[], path: PropertyKey[]) => {
    for (const [at, name] of names.entries()) refuseName(name, [...path, at]);
  };
  refuseIn(sections.upstream.forward_headers, ["upstream", "forward_headers"]);
  for (const [at, { forward_headers: names, database_header: header }] of routes.entries()) {
    refuseIn(names, ["routes", at, "forward_headers"]);
    if (header !== undefined) refuseName(header, ["routes", at, "database_header"]);
  }
}

/**
 * `[[issuers]]` and `[[mcp.authorization_servers]]` are one list, and login tokens and the embedded
 * authorization server have an issuer too.
 */
function refuseIssuersTwice(
  { server, upstream, auth, mcp, issuers }: Sections,
  context: z.core.$RefinementCtx,
): void {
  const lists = [
    ...issuers.map((one, at) => ({ one, path: ["issuers", at] })),
    ...mcp.authorization_servers.map((one, at) => ({
      one,
      path: ["mcp", "authorization_servers", at],
    })),
  ];
  const isOther = ({ path }: (typeof lists)[number]) => path[0] === "mcp";
  for (const { one, path } of lists.filter(isOther)) {
    for (const key of ["issuer", "prefix"] as const) {
      if (!issuers.some((other) => other[key] === one[key])) continue;
      refuse(context, [...path, key], "a value that none of [[issuers]] has");
    }
  }
  const ownUrl = server.public_url + basePathOf({ server, upstream });
  for (const { one, path } of lists) {
    if (one.issuer === auth.issuer) {
      refuse(context, [...path, "issuer"], "another value than auth.issuer");
    } else if (one.issuer === ownUrl) {
      refuse(context, [...path, "issuer"], "another URL than that of this gateway");
    }
  }
}

function isSamePlace(one: ListenAddress, other: ListenAddress): boolean {
  const hosts = [one.host.toLowerCase(), other.host.toLowerCase()];
  return one.port === other.port && (hosts[0] === hosts[1] || hosts.some(isUnspecified));
}

type Immutable<T> = T extends object ? { readonly [K in keyof T]: Immutable<T[K]> } : T;

export type Configuration = Immutable<z.output<typeof configurationSchema>>;

type WrittenIssuer = Configuration["issuers"][number];
export type IssuerSettings = Omit<WrittenIssuer, "opens"> & { readonly opens: readonly Door[] };

/** All external issuers, those of `[[mcp.authorization_servers]]` included. */
export function allIssuers({
  issuers,
  mcp,
}: Pick<Configuration, "mcp" | "issuers">): readonly IssuerSettings[] {
  const others = mcp.authorization_servers.map((one) => ({
    ...one,
    opens: ["mcp"] as const,
    groups_claim_optional: false,
    required_claims: {},
    attribute_claims: {},
    default_scopes: [],
    id_jag: false,
  }));
  return [...issuers, ...others];
}

/** True if users can sign in through a provider. */
export function hasLogin({ issuers }: Pick<Configuration, "issuers">): boolean {
  return issuers.some(({ login }) => login !== undefined);
}

/** True if the embedded authorization server accepts assertions of a provider. */
export function hasAssertions({ issuers }: Pick<Configuration, "issuers">): boolean {
  return issuers.some(({ id_jag: isOn }) => isOn);
}

/** True if `/mcp` exists. The embedded server runs queries, which a preset does not have. */
export function servesMcp({ mcp, upstream }: Pick<Configuration, "mcp" | "upstream">): boolean {
  return mcp.enabled && (upstream.preset === undefined || mcp.upstream !== undefined);
}

/** True if `/mcp` has an authorization server of its own. */
export function hasEmbeddedServer(
  configuration: Pick<Configuration, "mcp" | "issuers" | "upstream">,
): boolean {
  return (
    servesMcp(configuration) &&
    (hasLogin(configuration) ||
      !allIssuers(configuration).some(({ opens }) => opens.includes("mcp")))
  );
}

/** The part of external usernames before the colon. */
export function issuerPrefixes(configuration: Configuration): string[] {
  return allIssuers(configuration).map(({ prefix }) => prefix);
}
