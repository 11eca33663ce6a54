import { strictObject, z } from "zod";
import { wholeDatabase } from "../query/names.ts";
import {
  DEFAULT_POOL_SIZE,
  engineOver,
  isBaseUrl,
  normalBaseUrl,
  type UpstreamAddress,
  unixSocketPath,
} from "./addresses.ts";
import {
  credentialKeys,
  filePath,
  flag,
  GIBIBYTE,
  headerName,
  isCredentialHeader,
  key,
  MEBIBYTE,
  refuse,
  refuseRepeats,
  refuseServerUrl,
  refuseTwoCredentials,
  seconds,
  text,
  type ValueAtPath,
  wholeNumber,
} from "./kinds.ts";

const url = text(
  "http://host:port, https://host:port or unix:/path, without path, query and credentials",
  (url) => isBaseUrl(url) || isUnixSocketUrl(url),
).overwrite(normalBaseUrl);
const homeUrl = text(
  "http://host:port, https://host:port or unix:/path, without path, query and credentials; or a database: postgres://, mysql:// or mariadb:// with a percent-encoded user and password, or sqlite:DIRECTORY",
  (url) => isBaseUrl(url) || isUnixSocketUrl(url) || engineOver({ url }) !== undefined,
)
  .superRefine(refuseServerUrl)
  .overwrite(normalBaseUrl);
/** A path with query (RFC 9112, section 3.2.1), or an empty text. */
const healthPath = text("nothing, or / and visible ASCII characters but #", (path) =>
  /^(?:|\/[!"$-~]*)$/.test(path),
);

function isUnixSocketUrl(url: string): boolean {
  const path = unixSocketPath(url);
  return path !== undefined && path !== "" && !path.includes("\0");
}

function refuseUrlAndUrls({ url, urls }: UpstreamAddress, context: z.core.$RefinementCtx): void {
  if (url !== undefined && urls !== undefined) {
    refuse(context, ["urls"], "either url or urls, not both");
  }
}

const otherUpstream = strictObject({
  databases: key(
    z
      .array(
        text(
          "1 to 63 letters, digits, - and _, or two such names with a dot between",
          wholeDatabase,
        ),
      )
      .min(1),
    ["analytics", "archive"],
    "Databases on this upstream. They are on no other.",
  ),
  url: key(url.optional(), "http://127.0.0.1:9190", "URL of this upstream."),
  urls: key(
    z.array(url).min(1).optional(),
    ["http://127.0.0.1:9190", "http://127.0.0.1:9191"],
    "URLs of this upstream, if several servers each serve all of these databases.",
  ),
})
  .superRefine(refuseUrlAndUrls)
  .superRefine(({ url, urls }, context) => {
    if (url === undefined && urls === undefined) refuse(context, ["url"], "either url or urls");
  });

/** The databases whose interface the gateway knows, `features/databases/<name>.ts`. */
export const presetNames = ["chroma", "opensearch", "couchdb"] as const;
export type PresetName = (typeof presetNames)[number];

const keys = strictObject({
  url: key(
    homeUrl.optional(),
    "http://127.0.0.1:9090",
    "URL of the upstream, or of a database that the engine in the gateway uses, such as postgres://user@host/database. If absent: SQLite files in data/.",
  ),
  urls: key(
    z.array(url).min(1).optional(),
    ["http://10.0.0.1:9090", "http://10.0.0.2:9090"],
    "URLs of the upstream, instead of url, if several servers each serve the same data.",
  ),
  preset: key(
    z.enum(presetNames).optional(),
    "chroma",
    "Interface of the upstream, whose ordinary clients then use it through the gateway. Needs url. If absent: /query and configured routes alone.",
  ),
  ...credentialKeys("the upstream", "/run/secrets/upstream"),
  credential: strictObject({
    header: key(
      text(
        "a header name that is not hop-by-hop and not set by the gateway itself",
        isCredentialHeader,
      ),
      "x-chroma-token",
      "Header of requests to the upstream. That of a client is dropped.",
    ),
    file: key(
      filePath,
      "/run/secrets/upstream",
      "File with the value of that header, read again when it changes. Others may not read it.",
    ),
  })
    .optional()
    .describe(
      "The gateway's own credential for the upstream in any header, instead of authorization.",
    ),
  forward_authorization: flag(
    false,
    "Forward the client's own Authorization header to the upstream.",
  ),
  forward_headers: key(
    z.array(headerName).default([]),
    ["X-Tenant"],
    "Additional request headers that are forwarded to the upstream.",
  ),
  max_upload_bytes: wholeNumber(1, 1024 * GIBIBYTE)
    .default(100 * MEBIBYTE)
    .describe(
      "Largest body of a preset that the gateway passes on without reading it, in bytes. A larger one gets 413.",
    ),
  connections: wholeNumber(1, 10_000)
    .default(64)
    .describe(
      "Maximum number of connections to each URL at one time. Feeds without an end and streams of configured routes do not count.",
    ),
  connect_timeout: seconds.default(5).describe("Seconds to wait for a connection."),
  response_timeout: seconds
    .default(30)
    .describe("Seconds to wait for the head of a response, and between parts of its body."),
  query_form: z
    .enum(["keyed", "op"])
    .default("keyed")
    .describe('Outer shape of queries: {"Select": {...}} or {"op": "select", ...}.'),
  health_path: key(
    healthPath.default(""),
    "/healthz",
    "Path that returns 2xx if a URL can be used. If empty: a URL can be used if it accepts a connection.",
  ),
  health_interval: seconds
    .default(5)
    .describe("Seconds between two health checks of each URL, if there are several."),
  statement_timeout: key(
    seconds.optional(),
    10,
    "Seconds that the engine gives the database for one query. If absent: 30.",
  ),
  pool_size: key(
    wholeNumber(1, 1000).optional(),
    32,
    `Queries that the engine runs on a database server at one time, each on its own connection; the workers share them. If absent: ${DEFAULT_POOL_SIZE}.`,
  ),
  postgres_databases: key(
    z.enum(["schemas", "databases"]).optional(),
    "databases",
    "Whether a database in queries means a schema of the PostgreSQL database in url, or a database of that server. If absent: a schema.",
  ),
  databases: z.array(otherUpstream).default([]).describe("Databases on other upstreams."),
});

type Upstream = z.output<typeof keys>;

/** A repeated target would be counted, checked and loaded twice. */
function refuseTargetsTwice(upstream: Upstream, context: z.core.$RefinementCtx): void {
  const listUrls = ({ url, urls = [] }: UpstreamAddress, path: PropertyKey[]): ValueAtPath[] => [
    ...(url === undefined ? [] : [[url, [...path, "url"]] satisfies ValueAtPath]),
    ...urls.map((url, at): ValueAtPath => [url, [...path, "urls", at]]),
  ];
  const groups = upstream.databases.flatMap((group, at) => listUrls(group, ["databases", at]));
  const rule = () => "a URL that appears nowhere else in [upstream]";
  refuseRepeats(context, [...listUrls(upstream, []), ...groups], rule);
}

function refuseDatabasesTwice({ databases: groups }: Upstream, context: z.core.$RefinementCtx) {
  const values = groups.flatMap(({ databases }, group) =>
    databases.map((name, at): ValueAtPath => [name, ["databases", group, "databases", at]]),
  );
  // An upstream that folds case treats names that differ only by case as one.
  const rule = () => "each database once, whatever its case";
  refuseRepeats(context, values, rule, (name) => name.toLowerCase());
}

/** Refuses keys without effect, since an operator would rely on them. */
function refuseForEngine(upstream: Upstream, context: z.core.$RefinementCtx): void {
  const engine = engineOver(upstream);
  if (upstream.query_form === "op" && engine !== undefined) {
    refuse(context, ["query_form"], '"keyed", which the engine requires');
  }
  if (upstream.credential !== undefined && engine !== undefined) {
    refuse(context, ["credential"], "nothing, unless url is that of an HTTP server");
  }
  if (upstream.statement_timeout !== undefined && engine === undefined) {
    refuse(context, ["statement_timeout"], "nothing, unless url is that of a database");
  }
  if (upstream.pool_size !== undefined && engine !== "server") {
    refuse(context, ["pool_size"], "nothing, unless url is that of a database server");
  }
  if (upstream.postgres_databases !== undefined && !/^postgres/.test(upstream.url ?? "")) {
    refuse(context, ["postgres_databases"], "nothing, unless url is that of PostgreSQL");
  }
}

function refuseForPreset(upstream: Upstream, context: z.core.$RefinementCtx): void {
  if (upstream.preset === undefined) return;
  if (upstream.url === undefined || engineOver(upstream) !== undefined) {
    refuse(context, ["preset"], "nothing, unless url is that of an HTTP server");
  }
  if (upstream.databases.length > 0) {
    refuse(context, ["databases"], "nothing, since upstream.preset uses one upstream");
  }
  if (upstream.query_form === "op") {
    refuse(context, ["query_form"], '"keyed", which upstream.preset requires');
  }
  if (upstream.forward_authorization) {
    refuse(context, ["forward_authorization"], "false, which upstream.preset requires");
  }
}

/** The section `[upstream]`. */
export const upstream = keys
  .superRefine(refuseTwoCredentials)
  .superRefine(({ credential, authorization, authorization_file: file }, context) => {
    if (credential === undefined || (authorization ?? file) === undefined) return;
    refuse(context, ["credential"], "either credential or authorization, not both");
  })
  .superRefine(refuseForPreset)
  .superRefine(refuseUrlAndUrls)
  .superRefine(refuseTargetsTwice)
  .superRefine(refuseDatabasesTwice)
  .superRefine(refuseForEngine)
  .prefault({})
  .describe("The database that queries are forwarded to.");
