/** When users and their applications last logged in and last had a request allowed. */
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import * as z from "zod";
import { epochSeconds } from "../clock.ts";
import { replaceFile } from "../files/atomic.ts";
import { giveToDirectoryOwner } from "../files/guarded.ts";
import type { Log } from "./log.ts";

const WRITE_AFTER_MS = 5000;
const WRITE_EVERY_MS = 60_000;
/** Seconds without use after which an entry is dropped. */
export const FORGOTTEN_AFTER = 400 * 86_400;

/** Epoch seconds; 0 for never. */
export interface LastActivity {
  readonly login: number;
  readonly use: number;
}
const never: LastActivity = { login: 0, use: 0 };

const fileShape = z.record(z.string(), z.tuple([z.int(), z.int()]));

/** Unambiguous, because no username contains a space. */
function keyOf(user: string, client: string | undefined): string {
  return client === undefined ? user : `${user} ${client}`;
}

/** An unreadable file counts as empty and does not prevent the start. */
function readActivityFile(file: string): [key: string, activity: LastActivity][] {
  try {
    const known = Object.entries(fileShape.parse(JSON.parse(readFileSync(file, "utf8"))));
    return known.map(([key, [login, use]]) => [key, { login, use }]);
  } catch {
    return [];
  }
}

export interface ActivityPlace {
  load(): Iterable<readonly [key: string, activity: LastActivity]>;
  write(known: ReadonlyMap<string, LastActivity>): Promise<void>;
}

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

  /** Records an allowed request or login of a user, by an application if `client` is set. */
  note(user: string, client: string | undefined, isLogin = false): void {
    const now = epochSeconds();
    for (const key of client === undefined ? [user] : [user, keyOf(user, client)]) {
      const known = this.#known.get(key) ?? { login: 0, use: now };
      known.use = now;
      if (isLogin) known.login = now;
      this.#known.set(key, known);
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

  async close(): Promise<void> {
    if (this.#timer !== undefined) await this.#write();
    await this.#writing;
  }
}

/** The activity that all processes of a gateway have written. */
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

  of(user: string, client?: string): LastActivity {
    return this.#known.get(keyOf(user, client)) ?? never;
  }
}

/** Reads the files of all processes of a gateway. */
export function activityIn(serviceDirectory: string): KnownActivity {
  let names: string[] = [];
  try {
    names = readdirSync(serviceDirectory);
  } catch {
    // Nothing is known without the directory.
  }
  const files = names.filter((name) => /^activity\.\d+\.json$/.test(name));
  return new KnownActivity(
    files.flatMap((name) => readActivityFile(path.join(serviceDirectory, name))),
  );
}
