/** The tables of the store, as migrations that each run once, in order. */
import type { Database, Query } from "./database.ts";

/** Append only. Replicas of the previous release keep running during a migration. */
const migrations: readonly string[] = [
  `
  create table gatehouse.head (
    single boolean primary key default true check (single),
    version bigint not null, id uuid not null, access_version bigint not null, form int not null
  );
  create table gatehouse.log (
    version bigint primary key, id uuid not null, form int not null,
    at timestamptz not null default clock_timestamp(),
    author jsonb not null, kind text not null, data json not null, ends timestamptz
  );
  create index log_revocations on gatehouse.log (ends) where kind = 'revocation';
  create table gatehouse.users (
    username text collate "C" primary key, position bigint generated always as identity,
    version bigint not null, record json not null
  );
  create table gatehouse.boundaries (
    single boolean primary key default true check (single), version bigint not null, records json not null
  );
  create table gatehouse.keys (
    ring text not null, kid text not null, created bigint not null, sealed text not null,
    primary key (ring, kid)
  );
  create table gatehouse.leases (
    replica uuid primary key, name text not null, since timestamptz not null default clock_timestamp(),
    sent timestamptz not null, expires timestamptz not null,
    applied bigint not null, form int not null, ahead double precision not null
  );
  insert into gatehouse.head values (true, 0, gen_random_uuid(), 0, 1);
  insert into gatehouse.log (version, id, form, author, kind, data)
    select 0, id, 1, '{"kind":"store","name":""}', 'start', '{}' from gatehouse.head;
  insert into gatehouse.boundaries values (true, 0, '[]');
  `,
  `
  create table gatehouse.counters (
    name text collate "C" not null, key text collate "C" not null, count int not null,
    ends timestamptz not null, changed timestamptz not null, primary key (name, key)
  );
  create index counters_changed on gatehouse.counters (changed);
  create index counters_ends on gatehouse.counters (ends);
  `,
  `
  create table gatehouse.oauth (
    model text collate "C" not null, id text collate "C" not null, grant_id text, uid text,
    username text, issued bigint, sealed text not null,
    consumed timestamptz, expires timestamptz not null, primary key (model, id)
  );
  create index oauth_grants on gatehouse.oauth (grant_id) where grant_id is not null;
  create index oauth_uids on gatehouse.oauth (uid) where uid is not null;
  create index oauth_usernames on gatehouse.oauth (username) where username is not null;
  create index oauth_ends on gatehouse.oauth (expires);
  create table gatehouse.mcp_sessions (
    key text collate "C" primary key, kind text not null, username text not null,
    used timestamptz not null
  );
  create index mcp_sessions_usernames on gatehouse.mcp_sessions (username, kind, used);
  create index mcp_sessions_uses on gatehouse.mcp_sessions (used);
  `,
  `
  create table gatehouse.approvals (
    id text primary key, state text not null, asked bigint not null, expires bigint not null,
    username text not null, via text not null, client text, body_hash text not null,
    basis_hash text not null, operations text not null, operation_count int not null,
    rules text not null, body bytea, decided bigint, author text, reason text, touched text
  );
  create index approvals_by_user on gatehouse.approvals (username, state);
  create index approvals_by_end on gatehouse.approvals (state, expires);
  create table gatehouse.approval_shown (
    id text not null, author text not null, touched text not null, primary key (id, author)
  );
  create table gatehouse.approval_steps (
    number bigint generated always as identity primary key, name text not null, fields text not null
  );
  create table gatehouse.approval_ended (state text primary key, count bigint not null);
  `,
  `
  create table gatehouse.console_sessions (
    key text collate "C" primary key, username text collate "C" not null, token_id text not null,
    address text not null, user_agent text not null, credential text not null, issued bigint not null,
    version bigint not null, started timestamptz not null, used timestamptz not null
  );
  create index console_sessions_by_token on gatehouse.console_sessions (token_id);
  create index console_sessions_by_user on gatehouse.console_sessions (username);
  `,
  `
  alter table gatehouse.log add column before json;
  create index log_access on gatehouse.log (version) where kind = 'access';
  `,
  `
  create table gatehouse.activity (
    key text collate "C" primary key, login bigint not null, use bigint not null
  );
  `,
  `
  create index log_tokens on gatehouse.log (ends) where kind = 'token';
  `,
];

export const MIGRATIONS = migrations.length;

/** Arbitrary, but all processes that migrate must use the same number. */
const LOCK = 0x6761_7465;

export async function readMigrations(query: Query): Promise<number> {
  const [found] = await query("select to_regclass('gatehouse.migrations') is not null as is_there");
  if (found?.is_there !== true) return 0;
  const [row] = await query("select coalesce(max(number), 0) as number from gatehouse.migrations");
  return Number(row?.number);
}

export function migrate(database: Database): Promise<number> {
  return database.transaction(async (query) => {
    await query("select pg_advisory_xact_lock($1)", [LOCK]);
    const applied = await readMigrations(query);
    if (applied === 0) {
      // The role may lack the right to create a schema, and not need it.
      const [found] = await query("select to_regnamespace('gatehouse') is null as is_missing");
      if (found?.is_missing === true) await query("create schema gatehouse");
      await query(
        `create table gatehouse.migrations
          (number int primary key, at timestamptz not null default clock_timestamp())`,
      );
    }
    for (const [index, statements] of migrations.entries()) {
      if (index < applied) continue;
      for (const statement of statements.split(";\n")) {
        if (statement.trim() !== "") await query(statement);
      }
      await query("insert into gatehouse.migrations (number) values ($1)", [index + 1]);
    }
    return Math.max(0, migrations.length - applied);
  });
}
