import { z } from "zod";
import { wholePlainName } from "../../query/names.ts";
import {
  isBaseUrl,
  isEngineUrl,
  isServerUrl,
  normalBaseUrl,
  unixSocketPath,
} from "../addresses.ts";
import { isForwardableHeader } from "../headers.ts";
import {
  credentialKeys,
  flag,
  refuse,
  refuseTwoCredentials,
  seconds,
  text,
  wholeNumber,
} from "../kinds.ts";

const url = text(
  "http://host:port, https://host:port or unix:/path, without path, query and credentials",
  (url) => isBaseUrl(url) || isUnixSocketUrl(url),
).overwrite(normalBaseUrl);
const homeUrl = text(
  "http://host:port, https://host:port or unix:/path, without path, query and credentials; or a database: postgres://, mysql://, mariadb:// or sqlite:DIRECTORY",
  (url) => isBaseUrl(url) || isUnixSocketUrl(url) || isEngineUrl(url),
).overwrite(normalBaseUrl);
const headerName = text(
  "a header name that is not hop-by-hop, no credential, and not set by the gateway itself",
  isForwardableHeader,
);
const plainName = text("1 to 63 letters, digits, - and _", wholePlainName);
/** A path and query (RFC 9112, section 3.2.1), or nothing. */
const healthPath = text("nothing, or / and visible ASCII characters but #", (path) =>
  /^(?:|\/[!"$-~]*)$/.test(path),
);

function isUnixSocketUrl(url: string): boolean {
  const path = unixSocketPath(url);
  return path !== undefined && path !== "" && !path.includes("\0");
}

interface Where {
  readonly url?: string | undefined;
  readonly urls?: readonly string[] | undefined;
}

function refuseTwoPlaces({ url, urls }: Where, context: z.core.$RefinementCtx): void {
  if (url !== undefined && urls !== undefined) {
    refuse(context, ["urls"], "either url or urls, not both");
  }
}

const elsewhere = z
  .strictObject({
    databases: z
      .array(plainName)
      .min(1)
      .meta({
        description: "Databases that live there and nowhere else.",
        examples: [["analytics", "archive"]],
      }),
    url: url.optional().meta({
      description: "Where they live.",
      examples: ["http://127.0.0.1:9190"],
    }),
    urls: z
      .array(url)
      .min(1)
      .optional()
      .meta({
        description: "Where they live, if each of several serves all of them.",
        examples: [["http://127.0.0.1:9190", "http://127.0.0.1:9191"]],
      }),
  })
  .superRefine(refuseTwoPlaces)
  .superRefine(({ url, urls }, context) => {
    if (url === undefined && urls === undefined) refuse(context, ["url"], "either url or urls");
  });

const keys = z.strictObject({
  url: homeUrl.optional().meta({
    description:
      "Where the database listens, or a database that the gateway starts an engine for, such as postgres://user@host/database; absent: an engine over SQLite files in data/.",
    examples: ["http://127.0.0.1:9090"],
  }),
  urls: z
    .array(url)
    .min(1)
    .optional()
    .meta({
      description: "Where it listens, if each of several serves the same data; instead of url.",
      examples: [["http://10.0.0.1:9090", "http://10.0.0.2:9090"]],
    }),
  ...credentialKeys("The upstream's", "/run/secrets/upstream"),
  forward_authorization: flag(
    false,
    "Whether the client's own Authorization header goes upstream.",
  ),
  forward_headers: z
    .array(headerName)
    .default([])
    .meta({
      description: "Further request headers that go upstream.",
      examples: [["X-Tenant"]],
    }),
  connections: wholeNumber(1, 10_000).default(64).describe("Connections to each URL at one time."),
  connect_timeout: seconds().default(5).describe("Seconds to wait for a connection."),
  response_timeout: seconds()
    .default(30)
    .describe("Seconds to wait for the head of an answer, and between parts of its body."),
  query_form: z
    .enum(["keyed", "op"])
    .default("keyed")
    .describe('Outer shape of queries: {"Select": {...}}, or {"op": "select", ...}.'),
  health_path: healthPath.default("").meta({
    description:
      "Path whose answer with 2xx says that a URL can be used; nothing: that it takes a connection, or what `gatehouse engine` says of its database.",
    examples: ["/healthz"],
  }),
  health_interval: seconds()
    .default(5)
    .describe("Seconds between two checks of each of several URLs."),
  statement_timeout: seconds()
    .optional()
    .meta({
      description:
        "Seconds that the engine which the gateway starts gives the database for one query; absent: 30.",
      examples: [10],
    }),
  pool_size: wholeNumber(1, 1000)
    .optional()
    .meta({
      description:
        "Queries that this engine carries out at one time over a database server, each on a connection of its own; absent: 16.",
      examples: [32],
    }),
  postgres_databases: z
    .enum(["schemas", "databases"])
    .optional()
    .meta({
      description:
        "What a database of queries is over PostgreSQL: a schema of the one that url names, or a database of the server; absent: a schema.",
      examples: ["databases"],
    }),
  databases: z
    .array(elsewhere)
    .default([])
    .describe("Databases that live elsewhere than the others."),
});

type Upstream = z.output<typeof keys>;

/** A target that stood twice would be counted, checked and filled twice. */
function refuseTargetsTwice(upstream: Upstream, context: z.core.$RefinementCtx): void {
  const seen = new Set(upstream.url === undefined ? [] : [upstream.url]);
  const visit = ({ url, urls = [] }: Where, path: PropertyKey[]) => {
    const named = urls.map((url, index) => ({ url, at: [...path, "urls", index] }));
    if (path.length > 0 && url !== undefined) named.push({ url, at: [...path, "url"] });
    for (const { url, at } of named) {
      if (seen.has(url)) refuse(context, at, "a URL that stands nowhere else in [upstream]");
      seen.add(url);
    }
  };
  visit(upstream, []);
  for (const [index, group] of upstream.databases.entries()) visit(group, ["databases", index]);
}

/** Names that differ by case alone are one to an upstream that folds it. */
function refuseDatabasesTwice(
  { databases: groups }: Upstream,
  context: z.core.$RefinementCtx,
): void {
  const seen = new Set<string>();
  for (const [group, { databases }] of groups.entries()) {
    for (const [index, name] of databases.entries()) {
      const allowed = "each database once, whatever its case";
      if (seen.has(name.toLowerCase())) {
        refuse(context, ["databases", group, "databases", index], allowed);
      }
      seen.add(name.toLowerCase());
    }
  }
}

/** A key that nothing heeds would be trusted in vain; the own engine takes queries in one form alone. */
function refuseForEngine(upstream: Upstream, context: z.core.$RefinementCtx): void {
  const { url, urls } = upstream;
  const hasEngine = url === undefined ? urls === undefined : isEngineUrl(url);
  if (upstream.query_form === "op" && hasEngine) {
    refuse(context, ["query_form"], '"keyed", as the engine that the gateway starts wants it');
  }
  if (upstream.statement_timeout !== undefined && !hasEngine) {
    refuse(context, ["statement_timeout"], "nothing, unless the gateway starts the engine itself");
  }
  if (upstream.pool_size !== undefined && !isServerUrl(url ?? "")) {
    refuse(context, ["pool_size"], "nothing, unless url is that of a database server");
  }
  if (upstream.postgres_databases !== undefined && !/^postgres/.test(url ?? "")) {
    refuse(context, ["postgres_databases"], "nothing, unless url is that of PostgreSQL");
  }
}

/** `[upstream]`: the database behind the gateway. */
export const upstream = keys
  .superRefine(refuseTwoCredentials)
  .superRefine(refuseTwoPlaces)
  .superRefine(refuseTargetsTwice)
  .superRefine(refuseDatabasesTwice)
  .superRefine(refuseForEngine)
  .prefault({})
  .describe("The database behind the gateway.");
