/** The databases that `deploy/examples/` has routes for, and how they run for a test. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { Wire } from "../kit/wire.ts";
import { findProgram } from "./programs.ts";

/** Who asks: nobody, ReadOnly on `main`, ReadWrite on `main`, an administrator. */
type Who = "nobody" | "reader" | "writer" | "admin";

/** A request by way of an example's routes. */
export interface Case {
  readonly who: Who;
  /** Method and path. */
  readonly line: string;
  readonly body?: string;
  readonly status: number;
  /** What the real database answers; without it, nothing reaches the database. */
  readonly answer?: RegExp;
}

/** A database with an example. */
export interface Database {
  readonly name: string;
  /** The URL that the example gives it. */
  readonly url: string;
  readonly programs: readonly string[];
  readonly cases: readonly Case[];
  /** Starts it in a directory of its own; the port is the one with HTTP. */
  readonly run: (start: Start, port: number, directory: string) => Promise<void>;
}

/** Starts a program that listens on `port`, and waits until it does. */
type Start = (program: string, flags: readonly string[], port: number) => Promise<void>;

const refused = (who: Who, line: string, status: number, body?: string): Case =>
  body === undefined ? { who, line, status } : { who, line, status, body };
const passed = (who: Who, line: string, answer: RegExp, body?: string): Case =>
  body === undefined
    ? { who, line, status: 200, answer }
    : { who, line, status: 200, answer, body };

const base64 = (text: string) => Buffer.from(text).toString("base64");
const key = JSON.stringify({ key: base64("greeting") });
const pair = JSON.stringify({ key: base64("greeting"), value: base64("hello") });
const found = new RegExp(`"kvs":\\[\\{.*"value":"${base64("hello")}"`);

const etcd: Database = {
  name: "etcd",
  url: "http://127.0.0.1:2379",
  programs: ["etcd"],
  cases: [
    refused("nobody", "POST /v3/kv/range", 401, key),
    refused("writer", "POST /v3/kv/put", 403, pair),
    passed("admin", "POST /v3/kv/put", /"revision":"2"/, pair),
    passed("reader", "POST /v3/kv/range", found, key),
    refused("reader", "POST /v3/kv/deleterange", 403, key),
    passed("admin", "POST /v3/kv/deleterange", /"deleted":"1"/, key),
    refused("writer", "POST /v3/kv/txn", 403, "{}"),
    refused("admin", "POST /v3/auth/disable", 404, "{}"),
    refused("admin", "POST /v3beta/kv/range", 404, key),
    refused("admin", "GET /v3/kv/range", 405),
  ],
  async run(start, port, directory) {
    const url = `http://127.0.0.1:${port}`;
    const peers = `http://127.0.0.1:${await freePort()}`;
    const clients = ["--listen-client-urls", url, "--advertise-client-urls", url];
    const flags = [...clients, "--listen-peer-urls", peers, "--data-dir", directory];
    await start("etcd", flags, port);
  },
};

const webdis: Database = {
  name: "webdis",
  url: "http://127.0.0.1:7379",
  programs: ["redis-server", "webdis"],
  cases: [
    refused("nobody", "GET /HGET/main/greeting", 401),
    refused("reader", "PUT /HSET/main/greeting", 403, "hello/you"),
    passed("writer", "PUT /HSET/main/greeting", /\{"HSET":1\}/, "hello/you"),
    passed("reader", "GET /HGET/main/greeting", /\{"HGET":"hello\/you"\}/),
    passed("reader", "GET /HGET/m%61in/greeting.txt", /^hello\/you/),
    refused("writer", "GET /HGET/other/greeting", 403),
    refused("writer", "GET /HGET/MAIN/greeting", 403),
    refused("reader", "GET /HINCRBY/main/count/5", 403),
    passed("writer", "GET /HINCRBY/main/count/5", /\{"HINCRBY":5\}/),
    passed("reader", "GET /HGETALL/main", /"greeting":"hello\/you"/),
    refused("admin", "GET /HGETALL/main.txt", 400),
    refused("admin", "GET /HGETALL/main%2fx", 400),
    refused("reader", "GET /HDEL/main/count", 403),
    passed("writer", "GET /HDEL/main/count", /\{"HDEL":1\}/),
    refused("writer", "GET /DEL/main", 403),
    // Webdis would carry the body out, whatever the path.
    refused("admin", "POST /HGET/main/greeting", 405, "FLUSHALL"),
    refused("admin", "GET /FLUSHALL", 404),
    refused("admin", "GET /7/HGET/main/greeting", 404),
    passed("admin", "GET /DEL/main", /\{"DEL":1\}/),
  ],
  async run(start, port, directory) {
    const redis = await freePort();
    const local = ["--bind", "127.0.0.1", "--port", String(redis), "--save", ""];
    await start("redis-server", [...local, "--dir", directory], redis);
    const file = path.join(directory, "webdis.json");
    const settings = {
      ...{ redis_host: "127.0.0.1", redis_port: redis, database: 0, pool_size: 1 },
      ...{ http_host: "127.0.0.1", http_port: port, threads: 1 },
      ...{ daemonize: false, websockets: false, logfile: path.join(directory, "webdis.log") },
    };
    writeFileSync(file, JSON.stringify(settings));
    await start("webdis", [file], port);
  },
};

export const databases: readonly Database[] = [etcd, webdis];

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

/**
 * Starts a database for a test, with which it ends.
 *
 * @returns its URL; undefined if this machine lacks one of its programs
 */
export async function startDatabase(t: Test, database: Database): Promise<string | undefined> {
  const files = new Map(database.programs.map((name) => [name, findProgram(name)]));
  if ([...files.values()].includes(undefined)) return undefined;
  const directory = temporaryHome(t);
  const start: Start = async (program, flags, port) => {
    const child = spawn(files.get(program) ?? program, flags, { cwd: directory, stdio: "ignore" });
    t.teardown(() => end(child));
    await eventually(`${program} listens`, async () => {
      if (child.exitCode !== null) throw new Error(`${program} ended`);
      return !(await Wire.isRefused(`http://127.0.0.1:${port}`));
    });
  };
  const port = await freePort();
  await database.run(start, port, directory);
  return `http://127.0.0.1:${port}`;
}
