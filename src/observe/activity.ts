/** When users and their applications last logged in and last were allowed something. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import * as z from "zod";
import { epochSeconds } from "../clock.ts";
import { replaceFile } from "../files/atomic.ts";
import { giveToDirectoryOwner } from "../files/guarded.ts";
import type { Log } from "./log.ts";

/** Milliseconds after which what was noted is written. */
const WRITE_AFTER_MS = 5000;
/** Milliseconds between two writes. */
const WRITE_EVERY_MS = 60_000;
/** Seconds after which what was not used is forgotten. */
export const FORGOTTEN_AFTER = 400 * 86_400;

/** What is known of a user, or of one of its applications. Epoch seconds; 0 for never. */
export interface LastActivity {
  readonly login: number;
  readonly use: number;
}
const never: LastActivity = { login: 0, use: 0 };

const fileShape = z.record(z.string(), z.tuple([z.int(), z.int()]));

/** Each process of a gateway keeps a file of its own. */
const fileName = /^activity\.\d+\.json$/;

/** No username has a space. */
function keyOf(user: string, client: string | undefined): string {
  return client === undefined ? user : `${user} ${client}`;
}

/** One that cannot be read tells nothing: it is no reason not to start. */
function readActivityFile(file: string): [key: string, activity: LastActivity][] {
  try {
    const known = Object.entries(fileShape.parse(JSON.parse(readFileSync(file, "utf8"))));
    return known.map(([key, [login, use]]) => [key, { login, use }]);
  } catch {
    return [];
  }
}

/** Where a process keeps what it has noted. */
export interface ActivityPlace {
  /** What is known from before. */
  load(): Iterable<readonly [key: string, activity: LastActivity]>;
  write(known: ReadonlyMap<string, LastActivity>): Promise<void>;
}

/** A file of its own for each process. @param number of the process among those of a gateway */
export function activityFile(serviceDirectory: string, number: number): ActivityPlace {
  const file = path.join(serviceDirectory, `activity.${number}.json`);
  return {
    load: () => readActivityFile(file),
    async write(known) {
      const entries = known.entries().map(([key, { login, use }]) => [key, [login, use]]);
      await replaceFile(file, JSON.stringify(Object.fromEntries(entries)));
      giveToDirectoryOwner(file);
    },
  };
}

/** Notes activity of the requests of one process. */
export class ActivityNotes {
  readonly #place: ActivityPlace;
  readonly #log: Log;
  readonly #known: Map<string, { login: number; use: number }>;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #pause = WRITE_AFTER_MS;
  #hasFailed = false;

  constructor(place: ActivityPlace, log: Log) {
    this.#place = place;
    this.#log = log;
    const oldest = epochSeconds() - FORGOTTEN_AFTER;
    const recent = Array.from(place.load()).filter(
      ([, { login, use }]) => Math.max(login, use) > oldest,
    );
    this.#known = new Map(recent.map(([key, activity]) => [key, { ...activity }]));
  }

  /** Notes that a user was allowed something, by an application if there is one. */
  note(user: string, client: string | undefined, isLogin = false): void {
    const now = epochSeconds();
    this.#noteKey(user, now, isLogin);
    if (client !== undefined) this.#noteKey(keyOf(user, client), now, isLogin);
  }

  #noteKey(key: string, now: number, isLogin: boolean): void {
    const known = this.#known.get(key);
    if (known === undefined) this.#known.set(key, { login: isLogin ? now : 0, use: now });
    else if (known.use === now && !isLogin) return;
    else {
      known.use = now;
      if (isLogin) known.login = now;
    }
    this.#timer ??= setTimeout(() => void this.#write(), this.#pause).unref();
  }

  #write(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#pause = WRITE_EVERY_MS;
    this.#writing = this.#writing.then(() => this.#keep());
    return this.#writing;
  }

  async #keep(): Promise<void> {
    try {
      await this.#place.write(this.#known);
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed) this.#log.warn({ err: error }, "last use of users cannot be written");
      this.#hasFailed = true;
    }
  }

  /** Writes what is not written yet. */
  async close(): Promise<void> {
    if (this.#timer !== undefined) await this.#write();
    await this.#writing;
  }
}

/** What all processes of a gateway have written down. */
export class KnownActivity {
  readonly #known = new Map<string, LastActivity>();

  constructor(activities: Iterable<readonly [key: string, activity: LastActivity]>) {
    for (const [key, { login, use }] of activities) {
      const before = this.#known.get(key) ?? never;
      this.#known.set(key, {
        login: Math.max(before.login, login),
        use: Math.max(before.use, use),
      });
    }
  }

  /** Of a user, or of one of its applications. */
  of(user: string, client?: string): LastActivity {
    return this.#known.get(keyOf(user, client)) ?? never;
  }
}

/** What all processes of a service directory have written down. */
export function activityIn(serviceDirectory: string): KnownActivity {
  const files = namesIn(serviceDirectory).filter((name) => fileName.test(name));
  return new KnownActivity(
    files.flatMap((name) => readActivityFile(path.join(serviceDirectory, name))),
  );
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
