import { z } from "zod";
import {
  isLoopback,
  isServerUrl,
  isUnspecified,
  type ListenAddress,
  parseListenAddress,
} from "./addresses.ts";
import { filePath, listenAddress, publicUrl, refuse, seconds, text, wholeNumber } from "./kinds.ts";
import { auth } from "./sections/auth.ts";
import { mcp } from "./sections/mcp.ts";
import { query } from "./sections/query.ts";
import { routes } from "./sections/routes.ts";
import { server } from "./sections/server.ts";
import { upstream } from "./sections/upstream.ts";

/** `[console]`: the pages for operators and users, on a listener of their own. */
const consolePages = z
  .strictObject({
    listen: listenAddress()
      .optional()
      .meta({
        description:
          "Where the console's pages are served, on a listener and an origin of their own; absent: no console.",
        examples: ["127.0.0.1:8081"],
      }),
    public_url: publicUrl()
      .default("")
      .meta({
        description:
          "How browsers reach the console, behind a TLS front; empty: http:// on the port of listen, from this machine alone.",
        examples: ["https://console.example.com"],
      }),
  })
  .superRefine(({ listen, public_url: url }, context) => {
    if (url.startsWith("http:") && !isLoopback(new URL(url).hostname)) {
      const allowed = "an https:// URL, or one of a loopback address, since passwords go over it";
      refuse(context, ["public_url"], allowed);
    }
    const address = listen === undefined ? undefined : parseListenAddress(listen);
    if (address === undefined || isLoopback(address.host) || url.startsWith("https:")) return;
    const allowed =
      "a loopback address, or console.public_url with https://, since passwords go over it";
    refuse(context, ["listen"], allowed);
  })
  .prefault({})
  .describe("The console: pages for operators and users, without script. Off unless it listens.");

/** The default name of the key file, which is in the service directory. */
export const storeKeyFile = "store.key";

const postgresUrl = text(
  "postgres://user@host:port/database",
  (url) => /^postgres(?:ql)?:/.test(url) && isServerUrl(url),
);

/** `[store]`: what several replicas share. */
const store = z
  .strictObject({
    url: postgresUrl.optional().meta({
      description:
        "PostgreSQL database that several replicas share; absent: everything is in files of this one.",
      examples: ["postgres://gatehouse@db.example/gatehouse"],
      writeOnly: true,
    }),
    key_file: filePath()
      .default(storeKeyFile)
      .describe(
        "Lines of 32 random bytes in base64url, the same at every replica: the first encrypts what is secret in the store, all decrypt; the bare default name is in the service directory.",
      ),
    access: z
      .enum(["store", "file"])
      .default("store")
      .describe(
        "Where users and grants are: in the store, or in access_control_file, which is then each replica's own and never written; all else is shared either way.",
      ),
    max_staleness: wholeNumber(2, 3600)
      .default(10)
      .describe(
        "Seconds for which a replica decides without having reached the store; then 503. The next change waits this long and 5 seconds more for a replica that was killed.",
      ),
  })
  .prefault({})
  .describe("What several replicas share, in PostgreSQL.");

/** gateway.toml as one schema: types, defaults, bounds and descriptions of every key. */

const metrics = z
  .strictObject({
    listen: listenAddress()
      .optional()
      .meta({
        description:
          "Where Prometheus metrics are served, at /metrics on a listener of their own; absent: nowhere.",
        examples: ["127.0.0.1:9464"],
      }),
  })
  .prefault({})
  .describe("Prometheus metrics.");

const audit = z
  .strictObject({
    file: filePath()
      .optional()
      .meta({
        description: "File that the audit log is appended to; absent: standard output.",
        examples: ["audit.log"],
      }),
  })
  .prefault({})
  .describe("The audit log: one line for each decision.");

const approvals = z
  .strictObject({
    wait: seconds().default(600).meta({
      description:
        "How long what needs an approval waits for one, and how long one that was given can be used, in seconds.",
      live: true,
    }),
    keep: z.int().min(0).max(3650).default(30).meta({
      description:
        "Days for which a query that was approved or denied is kept, encrypted, for review by approvers and administrators; 0: deleted when decided.",
    }),
  })
  .prefault({})
  .describe("What `require_approval` in the access file asks for.");

/** The schema of gateway.toml. Descriptions, bounds and examples are public: the docs print them. */
export const configurationSchema = z
  .strictObject({
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
  })
  .superRefine(
    ({ server, auth }, context) => {
      if (auth.enabled || auth.insecure_allow_remote || isLoopback(server.host)) return;
      refuse(
        context,
        ["auth", "enabled"],
        `true, since other machines can reach server.host ${JSON.stringify(server.host)}; ` +
          'to go without authentication set server.host = "127.0.0.1", ' +
          "or accept the risk with auth.insecure_allow_remote = true",
      );
    },
    ifGood("server", "auth"),
  )
  .superRefine(
    ({ server, console }, context) => {
      if (console.public_url === "" || console.public_url !== server.public_url) return;
      refuse(context, ["console", "public_url"], "another origin than server.public_url");
    },
    ifGood("server", "console"),
  )
  .superRefine(
    ({ server, console, metrics }, context) => {
      const taken = [{ key: "server.port", host: server.host, port: server.port }];
      for (const [section, { listen }] of Object.entries({ console, metrics })) {
        const address = listen === undefined ? undefined : parseListenAddress(listen);
        if (address === undefined || address.port === 0) continue;
        const other = taken.find((one) => isSamePlace(one, address));
        if (other !== undefined)
          refuse(context, [section, "listen"], `another port than ${other.key}`);
        taken.push({ key: `${section}.listen`, ...address });
      }
    },
    ifGood("server", "console", "metrics"),
  )
  .superRefine(
    ({ server, upstream }, context) => {
      if (upstream.connections >= server.workers) return;
      const allowed = `at least one for each of server.workers, which is ${server.workers}`;
      refuse(context, ["upstream", "connections"], allowed);
    },
    ifGood("server", "upstream"),
  );

/** True if two listeners cannot both be there. */
function isSamePlace(one: ListenAddress, other: ListenAddress): boolean {
  const hosts = [one.host.toLowerCase(), other.host.toLowerCase()];
  return one.port === other.port && (hosts[0] === hosts[1] || hosts.some(isUnspecified));
}

/** Has a rule between sections judged once nothing is wrong with either by itself. */
function ifGood(...sections: readonly PropertyKey[]) {
  return {
    when: ({ issues }: z.core.ParsePayload) =>
      !issues.some(({ path: [section = ""] = [] }) => sections.includes(section)),
  };
}

type Immutable<T> = T extends object ? { readonly [K in keyof T]: Immutable<T[K]> } : T;

/** A checked configuration: keys as in the file, every default filled in, frozen. */
export type Configuration = Immutable<z.output<typeof configurationSchema>>;

/** What the names of external users begin with, before a colon. */
export function issuerPrefixes({ mcp }: Configuration): string[] {
  return mcp.authorization_servers.map(({ prefix }) => prefix);
}
