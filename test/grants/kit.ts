import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import t, { type Test } from "tap";
import { sharedServer as sharedMysql } from "../engine/mysql/kit.ts";
import { sharedServer as sharedPostgres } from "../engine/postgres/kit.ts";
import { editInForce } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { type Answer, type RunOptions, startGateway, type TestGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

/** What asks queries: objects, or text where the spelling matters. */
export type Ask = (query: object | string) => Promise<Answer>;

export interface Site {
  readonly gateway: TestGateway;
  readonly admin: Ask;
  readonly adminToken: string;
  /** Puts these lines in the place of all entries but the administrator's. */
  allow(entries: string): Promise<void>;
  /** Removes the entries and attributes of a test before the next one. */
  clear(): Promise<void>;
  /** A user's token; the user is made when first asked for, with attributes as the file has them. */
  tokenOf(username: string, attributes?: string): Promise<string>;
  /** Asks as a user. */
  as(username: string, attributes?: string): Promise<Ask>;
}

export async function openSite(t: Pick<Test, "teardown">, options: RunOptions = {}): Promise<Site> {
  const gateway = await startGateway(t, options);
  const adminToken = await gateway.login();
  const tokens = new Map<string, string>();
  const attributed = new Set<string>();
  const edit = (change: (text: string) => string) => editInForce(gateway, change);
  const site: Site = {
    gateway,
    adminToken,
    async admin(query) {
      const answer = await gateway.query(query, adminToken);
      if (answer.status !== 200) throw new Error(`${JSON.stringify(query)}: ${answer.text}`);
      return answer;
    },
    async allow(entries) {
      await edit((text) => {
        const [before = ""] = text.split(/^# entries of the test\n/m);
        const kept = before.replaceAll(
          /\[\[acl\]\]\nusername = "(?!admin")[^"]*"\ndatabase = .*\nrole = .*\n\n?/g,
          "",
        );
        return `${kept.trimEnd()}\n\n# entries of the test\n${entries}\n`;
      });
    },
    async clear() {
      await site.allow("");
      await edit((text) => text.replaceAll(/^attributes = .*\n/gm, ""));
      attributed.clear();
    },
    async tokenOf(username, attributes) {
      const token =
        tokens.get(username) ?? (await gateway.addUser(username, "ReadOnly", "nowhere"));
      tokens.set(username, token);
      if (attributes !== undefined && !attributed.has(username)) {
        attributed.add(username);
        const line = `username = "${username}"\n`;
        await edit((text) =>
          text.replace(`[[users]]\n${line}`, `[[users]]\n${line}attributes = ${attributes}\n`),
        );
      }
      return token;
    },
    async as(username, attributes) {
      const token = await site.tokenOf(username, attributes);
      return (query) => gateway.query(query, token);
    },
  };
  return site;
}

export interface Kind {
  readonly name: "SQLite" | "PostgreSQL" | "MariaDB";
  /** The URL of a new database. */
  fresh(): Promise<string | undefined>;
  sql(site: Site, url: string | undefined, ...statements: string[]): Promise<unknown>;
  /** Removes everything from `main`. */
  empty(site: Site, url: string | undefined): Promise<unknown>;
}

function sqliteOf({ gateway }: Site): DatabaseSync {
  return new DatabaseSync(path.join(gateway.home, "data", "main.sqlite"), {
    enableForeignKeyConstraints: false,
  });
}

const kinds: readonly Kind[] = [
  {
    name: "SQLite",
    fresh: async () => undefined,
    async sql(site, _url, ...statements) {
      using database = sqliteOf(site);
      for (const statement of statements) database.exec(statement);
    },
    async empty(site) {
      using database = sqliteOf(site);
      const made = database.prepare(
        `select type, name from sqlite_schema where type in ('table', 'view')
          and name not glob 'sqlite_*'`,
      );
      for (const { type, name } of made.all()) database.exec(`drop ${type} "${name}"`);
    },
  },
  {
    name: "PostgreSQL",
    async fresh() {
      const server = await sharedPostgres();
      return server.url(await server.createDatabase());
    },
    async sql(_site, url = "", ...statements) {
      const server = await sharedPostgres();
      const path = "set search_path to main, public";
      return server.sql([path, ...statements].join(";"), new URL(url).pathname.slice(1));
    },
    async empty(site, url) {
      await this.sql(site, url, "drop schema main cascade");
      return site.admin({ CreateDatabase: { database: "main" } });
    },
  },
  {
    name: "MariaDB",
    async fresh() {
      const server = await sharedMysql();
      const databases = await server.sql(
        `select schema_name as name from information_schema.schemata where schema_name not in
          ('mysql', 'sys', 'information_schema', 'performance_schema')`,
      );
      await server.sql(...databases.map(({ name }) => `drop database \`${name}\``), "select 1");
      return server.url;
    },
    async sql(_site, _url, ...statements) {
      return (await sharedMysql()).sql("use main", ...statements);
    },
    async empty(site) {
      await (await sharedMysql()).sql("drop database main");
      return site.admin({ CreateDatabase: { database: "main" } });
    },
  },
];

export type Sql = (...statements: string[]) => Promise<unknown>;

/** One gateway for all tests of a file over a kind of database. */
async function openOver(kind: Kind): Promise<{ site: Site; url: string | undefined }> {
  const url = await kind.fresh();
  const site = await openSite(t, url === undefined ? {} : { upstream: url });
  await eventually("the database answers", async () => {
    const made = await site.gateway.query(
      { CreateDatabase: { database: "main" } },
      site.adminToken,
    );
    return made.status === 200 || made.body.code === "database_exists";
  });
  return { site, url };
}

const shared = new Map<Kind, ReturnType<typeof openOver>>();

type SiteBody = (t: Test, site: Site, kind: Kind, sql: Sql) => Promise<void>;

/** For types, errors and what a database computes in an order of its own. */
export function overEachSite(name: string, body: SiteBody): void {
  for (const kind of kinds) overSite(kind, name, body);
}

/**
 * For the meaning of queries: over SQLite.
 *
 * @param others for the other databases
 */
export function overSqliteSite(name: string, others: object, body: SiteBody): void {
  for (const kind of kinds) overSite(kind, name, body, kind.name === "SQLite" ? {} : others);
}

function overSite(kind: Kind, name: string, body: SiteBody, options: object = {}): void {
  t.test(`${name} (${kind.name})`, options, async (t) => {
    const opened = shared.get(kind) ?? openOver(kind);
    shared.set(kind, opened);
    const { site, url } = await opened;
    await site.clear();
    await kind.empty(site, url);
    await body(t, site, kind, (...statements) => kind.sql(site, url, ...statements));
  });
}

/** A gateway before an upstream that notes what reaches it. */
export async function openRecorded(t: Test, options: RunOptions = {}) {
  const upstream = await new RecordingUpstream().listen(t);
  const site = await openSite(t, { ...options, upstream: upstream.url });
  /** The bodies that reached the upstream since the last call, health checks aside. */
  const bodies = () =>
    upstream
      .take()
      .filter(({ method }) => method === "POST")
      .map(({ body }) => body.toString());
  return { ...site, upstream, bodies };
}

export function entry(username: string, database: string, role: string, more = ""): string {
  return `[[acl]]\nusername = "${username}"\ndatabase = "${database}"\nrole = "${role}"\n${more}\n\n`;
}

export function select(from: string, columns: readonly string[], more: object = {}) {
  return { Select: { database: "main", from, columns, ...more } };
}

/** Status and code of an answer, and in a Batch the reason: what decides it in one line. */
export function outcome({ status, body: { code, reason } }: Answer): string {
  const why = reason === undefined ? "" : ` (${String(reason)})`;
  return code === undefined ? String(status) : `${status} ${String(code)}${why}`;
}

/** A row filter by the caller's tenant, as the file has it. */
export const tenantFilter = 'row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]';
/** The table that changes are made to. */
export const tickets = { database: "main", table: "tickets" };
/** The same as forwarded for the tenant acme. */
export const condition = '{"column":"tenant","cmp":"=","value":"acme"}';
/** That tenant, and text that has to be escaped. */
export const attributes = '{ tenant = "acme", quoted = "a\\"\\\\é😀\\n" }';

/** A comparison in a condition. */
export function term(column: string, cmp: string, value: unknown) {
  return { column, cmp, value };
}
