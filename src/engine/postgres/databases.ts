import { once } from "node:events";
import { connect as connectSocket, isIP, Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { sql } from "kysely";
import { Client, DatabaseError } from "pg";
import { foldCase, isPlainName } from "../../core/query/names.ts";
import { EngineRefusal } from "../refusal.ts";
import { type Connection, ConnectionLost } from "../remote/dialect.ts";
import { databaseNotFound, refused } from "../remote/failures.ts";
import type { KnownTables } from "../remote/known-tables.ts";
import { guardReading } from "../remote/reading.ts";
import type { Fragment } from "../sql/fragment.ts";
import { clientOptions, PasswordMissing, type ServerAddress } from "./address.ts";
import type { PostgresTable } from "./kinds.ts";
import { cancelKey, PostgresSession, type TextRow } from "./session.ts";

const CONNECT_TIMEOUT_MS = 5000;

const END_TIMEOUT_MS = 1000;

/** A type, then the length of what follows with its own four bytes (PostgreSQL, "Message Formats"). */
const framing = {
  headerBytes: 5,
  lengthAt: (bytes: Buffer, at: number) => bytes.readUInt32BE(at + 1) - 4,
  goesOn: () => false,
};

interface SessionOptions {
  readonly tables: KnownTables<PostgresTable>;
  /** In milliseconds per statement. */
  readonly timeLimit: number;
}

/** SQLSTATEs with which the server ends a connection, a moment before it closes. */
const lastErrors = /^(25P0[34]|57P0[1245])$/;

export class PostgresConnection implements Connection<PostgresSession> {
  readonly session: PostgresSession;
  readonly #address: ServerAddress;
  readonly #client: Client;
  #isBroken = false;

  private constructor(address: ServerAddress, client: Client, session: PostgresSession) {
    this.session = session;
    this.#address = address;
    this.#client = client;
    client.on("error", this.#onBreak);
    client.on("end", this.#onBreak);
    client.connection.on("errorMessage", ({ code }: DatabaseError) => {
      if (lastErrors.test(code ?? "")) this.#onBreak();
    });
  }

  /** @throws ConnectionLost, PasswordMissing, or the server's error if it refuses the connection */
  static async open(
    address: ServerAddress,
    database: string,
    { tables, timeLimit }: SessionOptions,
  ): Promise<PostgresConnection> {
    const options = clientOptions(address, database, CONNECT_TIMEOUT_MS);
    const socket = new Socket();
    const client = new Client({
      ...options,
      stream: () => socket,
      pipeline: true,
      // Values stay text, so that no digit is lost.
      types: { getTypeParser: () => (value: string) => value },
    });
    const session = new PostgresSession(client, tables, timeLimit);
    const connection = new PostgresConnection(address, client, session);
    let timer: NodeJS.Timeout | undefined;
    client.connection.once(address.ssl === false ? "connect" : "sslconnect", () => {
      guardReading(client.connection.stream, framing, session);
    });
    try {
      await client.connect();
      timer = setTimeout(() => socket.destroy(), options.connectionTimeoutMillis);
      await session.open();
      return connection;
    } catch (error) {
      // `pg` leaves the socket open when it did not get the password.
      socket.destroy();
      const isAnswer = error instanceof DatabaseError || error instanceof PasswordMissing;
      throw isAnswer ? error : new ConnectionLost(error);
    } finally {
      clearTimeout(timer);
    }
  }

  get isUsable(): boolean {
    const { stream } = this.#client.connection;
    return !this.#isBroken && stream.writable && !this.session.isWornOut;
  }

  readonly #onBreak = (): void => {
    this.#isBroken = true;
  };

  cancel(): Promise<void> {
    return requestCancel(this.#address, this.#client);
  }

  cut(): void {
    this.#client.connection.stream.destroy();
  }

  async end(): Promise<void> {
    const timer = setTimeout(() => this.#client.connection.stream.destroy(), END_TIMEOUT_MS);
    await this.#client.end();
    clearTimeout(timer);
  }
}

const CANCEL_TIMEOUT_MS = 2000;

/** Sent in place of a protocol version (PostgreSQL, "Message Formats"). */
const CANCEL_CODE = 80_877_102;
const TLS_CODE = 80_877_103;

/** The protocol requires a separate connection, and the server never confirms the cancellation. */
async function requestCancel(address: ServerAddress, client: Client): Promise<void> {
  const key = cancelKey(client);
  if (key === undefined) return;
  const socket = open(address);
  socket.on("error", () => socket.destroy());
  socket.setTimeout(CANCEL_TIMEOUT_MS, () => socket.destroy());
  try {
    await once(socket, "connect");
    const secured = address.ssl === false ? socket : await secure(address, socket);
    secured.end(message(CANCEL_CODE, ...key));
    await once(secured, "close");
  } catch {
    // The connection is discarded in any case, and the time limit ends the statement.
  } finally {
    socket.destroy();
  }
}

function open({ host, port }: ServerAddress): Socket {
  return host.startsWith("/")
    ? connectSocket(`${host}/.s.PGSQL.${port}`)
    : connectSocket(port, host);
}

async function secure({ host, ssl }: ServerAddress, socket: Socket): Promise<Socket> {
  socket.write(message(TLS_CODE));
  const [answer] = await once(socket, "data");
  if (String(answer) !== "S") throw new Error("The server does not support TLS");
  const options = typeof ssl === "object" ? ssl : {};
  const name = isIP(host) === 0 ? { servername: host } : {};
  const secured = connectTls({ host, ...name, ...options, socket });
  secured.on("error", () => secured.destroy());
  await once(secured, "secureConnect");
  return secured;
}

function message(...numbers: number[]): Buffer {
  const bytes = Buffer.alloc(4 * (numbers.length + 1));
  bytes.writeInt32BE(bytes.length, 0);
  for (const [index, number] of numbers.entries()) bytes.writeInt32BE(number, 4 * (index + 1));
  return bytes;
}

const reserved = ["postgres", "template0", "template1"];

/** The only schema that queries can reach if databases are the server's. */
const publicSchema = "public";

/** Gateway replicas may keep users and keys in this schema of a served database. */
const storeSchema = "gatehouse";

/** SQLSTATE of a database that accepts no connections, and of one in use. */
const notAccepting = "55000";
const inUse = "55006";

export function visibleDatabase(database: string): string {
  if (isServersDatabase(database)) throw databaseNotFound(database);
  return database;
}

export function publicSchemaName(database: string): string {
  visibleDatabase(database);
  return publicSchema;
}

/**
 * @throws EngineRefusal `database_not_found`, `permission_denied`, and what `PostgresConnection.open`
 * throws
 */
export async function openDatabase(
  address: ServerAddress,
  database: string,
  options: SessionOptions,
): Promise<PostgresConnection> {
  try {
    return await PostgresConnection.open(address, database, options);
  } catch (error) {
    if (database === address.database || !(error instanceof DatabaseError)) throw error;
    if (error.code === "3D000" || error.code === notAccepting) throw databaseNotFound(database);
    // The server's access rules (`pg_hba.conf`) do not admit this user to this database.
    if (error.code === "28000") throw new EngineRefusal(...refused.forbidden);
    throw error;
  }
}

export async function listDatabases(session: PostgresSession): Promise<string[]> {
  const found = await session.rows(sql`select datname from pg_catalog.pg_database
    where datallowconn and pg_catalog.has_database_privilege(datname, 'CONNECT')`);
  return clientNames(found, isServersDatabase);
}

export async function createDatabase(session: PostgresSession, database: string): Promise<void> {
  const existing = sql`select datname from pg_catalog.pg_database
    where pg_catalog.lower(datname) = pg_catalog.lower(${database})`;
  await requireFree(session, database, isServersDatabase(database), existing);
  await session.defineAlone(sql`create database ${sql.id(database)}`);
}

/** Refuses to drop the session's database if it contains objects that queries cannot create. */
export async function requireDroppable(session: PostgresSession): Promise<void> {
  const others = await session.rows(sql`
    select 1 from pg_catalog.pg_namespace
      where nspname not in (${publicSchema}, 'information_schema') and nspname not like 'pg\\_%'
    union all select 1 from pg_catalog.pg_class as class
      join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
      where nspname = ${publicSchema} and relkind in ('v', 'm', 'f', 'c')
    union all select 1 from pg_catalog.pg_proc
      join pg_catalog.pg_namespace as namespace on namespace.oid = pronamespace
      where nspname = ${publicSchema}
    limit 1`);
  if (others.length > 0) throw new EngineRefusal(...refused.depended);
}

export async function dropDatabase(session: PostgresSession, database: string): Promise<void> {
  visibleDatabase(database);
  const [[use] = []] = await session.rows(sql`
    select case when datistemplate or datname = pg_catalog.current_database()
      then 'protected' else 'free' end
    from pg_catalog.pg_database where datname = ${database}`);
  if (use == null) throw databaseNotFound(database);
  if (use === "protected") {
    throw new EngineRefusal("database_protected", `Database ${database} cannot be dropped`);
  }
  try {
    await session.defineAlone(sql`drop database ${sql.id(database)}`);
  } catch (error) {
    if (!(error instanceof DatabaseError) || error.code !== inUse) throw error;
    throw new EngineRefusal("database_in_use", `Database ${database} is in use`);
  }
}

export function visibleSchema(database: string): string {
  if (isReservedSchema(database)) throw databaseNotFound(database);
  return database;
}

export async function listSchemas(session: PostgresSession): Promise<string[]> {
  const found = await session.rows(sql`select nspname from pg_catalog.pg_namespace`);
  return clientNames(found, isReservedSchema);
}

export async function createSchema(session: PostgresSession, database: string): Promise<void> {
  const existing = sql`select nspname from pg_catalog.pg_namespace
    where pg_catalog.lower(nspname) = pg_catalog.lower(${database})`;
  await requireFree(session, database, isReservedSchema(database), existing);
  await session.run(sql`create schema ${sql.id(database)}`);
}

/**
 * Drops a schema with its tables. Without `cascade`, which would reach into other schemas, the
 * server refuses if something other than tables remains.
 */
export async function dropSchema(session: PostgresSession, database: string): Promise<void> {
  const schema = visibleSchema(database);
  const found = await session.rows(
    sql`select class.relname from pg_catalog.pg_namespace as namespace
      left join pg_catalog.pg_class as class
        on class.relnamespace = namespace.oid and class.relkind in ('r', 'p')
        and not exists (select 1 from pg_catalog.pg_inherits where inhrelid = class.oid)
      where namespace.nspname = ${schema}`,
  );
  if (found.length === 0) throw databaseNotFound(database);
  const tables = found.flatMap(([table]) => (table == null ? [] : [sql.id(schema, table)]));
  if (tables.length > 0) await session.define(sql`drop table ${sql.join(tables)}`);
  await session.define(sql`drop schema ${sql.id(schema)}`);
}

const reservedSchemas = ["information_schema", "crdb_internal", storeSchema];

function isReservedSchema(name: string): boolean {
  const folded = foldCase(name);
  return folded.startsWith("pg_") || reservedSchemas.includes(folded);
}

function isServersDatabase(name: string): boolean {
  return reserved.includes(foldCase(name));
}

function clientNames(found: readonly TextRow[], isServers: (name: string) => boolean): string[] {
  return found
    .map(([name]) => name ?? "")
    .filter((name) => isPlainName(name) && !isServers(name))
    .sort();
}

/** @param existing selects the name of a database that differs at most by case */
async function requireFree(
  session: PostgresSession,
  name: string,
  isReserved: boolean,
  existing: Fragment,
): Promise<void> {
  if (isReserved) {
    const owner = foldCase(name) === storeSchema ? "Gatehouse" : "PostgreSQL";
    throw new EngineRefusal("invalid_name", `The name ${name} is reserved for ${owner}`);
  }
  const [[found] = []] = await session.rows(existing);
  if (found == null) return;
  throw new EngineRefusal("database_exists", `Database ${found} already exists`);
}
