import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "../../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../../kit/gateway.ts";
import { insert } from "../kit.ts";
import { type Clients, changeOf, type Outcome, type Target } from "./client.ts";
import type { History } from "./history.ts";
import { unknownValue } from "./history.ts";
import type { Random } from "./random.ts";
import type { Rig } from "./rig.ts";

const ROLES = ["ReadWrite", "ReadOnly"];
const KEYS = "signing key";
/** Milliseconds between two requests of a client. */
const LEAST_PAUSE_MS = 15;
const MOST_PAUSE_MS = 90;

/** What a workload needs. */
export interface Scene {
  readonly rig: Rig;
  readonly clients: Clients;
  readonly history: History;
  readonly random: Random;
}

function kidOf(token: string): string {
  const head = Buffer.from(token.split(".", 1)[0] ?? "", "base64url").toString();
  return String(JSON.parse(head).kid);
}

/**
 * Clients that all at once read and change what replicas share: grants, passwords, tokens, the key
 * that signs. Each change and each look goes to any of the replicas, or to the front.
 */
export class Workload {
  readonly #scene: Scene;
  readonly #admin: string;
  /** Sets its users apart from those of another. */
  readonly #prefix: string;
  readonly #tokens = new Map<string, string>();
  #password = 0;
  #isOver = false;

  private constructor(scene: Scene, admin: string, prefix: string) {
    this.#scene = scene;
    this.#admin = admin;
    this.#prefix = prefix;
  }

  /** Makes users of its own, while nothing fails. */
  static async prepare(scene: Scene, prefix: string): Promise<Workload> {
    const [first] = scene.rig.replicas;
    if (first === undefined) throw new Error("no replica");
    const admin = await first.gateway.login("admin", ADMIN_PASSWORD);
    scene.history.open(KEYS, kidOf(admin));
    const workload = new Workload(scene, admin, prefix);
    for (const name of ["grant-0", "grant-1", "password", "token-0", "token-1"]) {
      const username = workload.#user(name);
      const account = { username, password: `${username} 0`, role: "ReadWrite" };
      await eventually(`${username} is made`, async () => {
        const { status } = await first.gateway.send("POST", "/api/users", account, admin);
        return [201, 409].includes(status);
      });
      workload.#tokens.set(username, await first.gateway.login(username, account.password));
    }
    for (const name of ["grant-0", "grant-1"])
      scene.history.open(workload.#user(name), ROLES[0] ?? "");
    scene.history.open(workload.#user("password"), "0");
    return workload;
  }

  #user(name: string): string {
    return `${this.#prefix}-${name}`;
  }

  /** Goes on until `stop`; resolves when the last request is answered or given up. */
  async run(): Promise<void> {
    const { everywhere } = this.#scene.clients;
    await Promise.all([
      ...["grant-0", "grant-1"].map((name) => this.#repeat(() => this.#changeGrant(name), 4)),
      ...everywhere.map((target) => this.#repeat(() => this.#lookAtGrant(target))),
      this.#repeat(() => this.#changePassword(), 4),
      ...everywhere.map((target) => this.#repeat(() => this.#tryPassword(target), 2)),
      ...["token-0", "token-1"].map((name) => this.#useTokens(name)),
      this.#rotateKeys(),
    ]);
  }

  stop(): void {
    this.#isOver = true;
  }

  /** Looks at everything at every replica, once nothing changes any more. */
  async lookAtAll(): Promise<void> {
    for (const target of this.#scene.clients.everywhere) {
      for (let round = 0; round < 4; round++) await this.#lookAtGrant(target, round % 2);
      for (let back = 0; back < 4; back++) await this.#tryPassword(target, back);
    }
  }

  async #repeat(act: () => Promise<void>, pauses = 1): Promise<void> {
    const { random } = this.#scene;
    while (!this.#isOver) {
      await act();
      await delay(pauses * random.between(LEAST_PAUSE_MS, MOST_PAUSE_MS));
    }
  }

  /** Makes a change as the administrator, and notes it. */
  async #change(
    registers: readonly string[],
    value: string,
    request: { method: string; route: string; content?: object; token?: string },
  ): Promise<"made" | "refused" | "unknown"> {
    const { clients, history } = this.#scene;
    const start = performance.now();
    const outcome = changeOf(
      await clients.ask(clients.anywhere, { token: this.#admin, isChange: true, ...request }),
    );
    const end = outcome === "made" ? performance.now() : Number.POSITIVE_INFINITY;
    if (outcome !== "refused") {
      for (const register of registers) history.wrote(register, value, start, end);
    }
    return outcome;
  }

  async #changeGrant(name: string): Promise<void> {
    const role = this.#scene.random.of(ROLES);
    const route = `/api/access/${this.#user(name)}/main`;
    await this.#change([this.#user(name)], role, { method: "PUT", route, content: { role } });
  }

  async #lookAtGrant(target: Target, which = Math.floor(this.#scene.random.between(0, 2))) {
    const { history } = this.#scene;
    const user = this.#user(`grant-${which}`);
    const start = performance.now();
    const outcome = await this.#query(target, this.#tokens.get(user) ?? "");
    if (typeof outcome === "string" || ![200, 403].includes(outcome.status)) return;
    history.read(user, outcome.replica, "ReadWrite", outcome.status === 200, start);
  }

  #query(target: Target, token: string): Promise<Outcome> {
    return this.#scene.clients.ask(target, {
      ...{ method: "POST", route: "/query", content: insert, token },
    });
  }

  async #changePassword(): Promise<void> {
    const user = this.#user("password");
    const value = String(++this.#password);
    const content = { new_password: `${user} ${value}` };
    await this.#change([user], value, {
      ...{ method: "PUT", route: `/api/users/${user}/password`, content },
    });
  }

  /** Logs in by one of the last passwords. */
  async #tryPassword(target: Target, back = Math.floor(this.#scene.random.between(0, 3))) {
    const user = this.#user("password");
    const value = String(Math.max(0, this.#password - back));
    const start = performance.now();
    const outcome = await this.#logIn(target, user, `${user} ${value}`);
    if (typeof outcome === "string" || ![200, 401].includes(outcome.status)) return;
    this.#scene.history.read(user, outcome.replica, value, outcome.status === 200, start);
  }

  async #logIn(target: Target, username: string, password: string): Promise<Outcome> {
    const { clients, history } = this.#scene;
    const start = performance.now();
    const content = { username, password };
    const outcome = await clients.ask(target, { method: "POST", route: "/login", content });
    if (typeof outcome !== "string" && outcome.status === 200) {
      history.read(KEYS, outcome.replica, kidOf(String(outcome.body.token)), true, start);
    }
    return outcome;
  }

  /** Logs in, queries here and there, and ends the token, or all tokens of the user. */
  async #useTokens(name: string): Promise<void> {
    const { clients, history, random } = this.#scene;
    const user = this.#user(name);
    /** When the ends of all tokens began of which nobody knows: they may be yet to come. */
    const mayEnd: number[] = [];
    let count = 0;
    await this.#repeat(async () => {
      const answer = await this.#logIn(clients.anywhere, user, `${user} 0`);
      if (typeof answer === "string" || answer.status !== 200) return;
      const token = String(answer.body.token);
      const register = `${user} token ${count++}`;
      history.open(register, "good");
      for (const start of mayEnd) history.wrote(register, "ended", start, Number.POSITIVE_INFINITY);
      for (let looks = 0; looks < 3; looks++)
        await this.#useToken(clients.anywhere, register, token);
      const isAll = random.next() < 0.5;
      const start = performance.now();
      const outcome = isAll
        ? await this.#change([register], "ended", {
            method: "DELETE",
            route: `/api/users/${user}/tokens`,
          })
        : await this.#change([register], "ended", { method: "POST", route: "/logout", token });
      if (isAll && outcome === "unknown") mayEnd.push(start);
      const { everywhere } = clients;
      await Promise.all(everywhere.map((target) => this.#useToken(target, register, token)));
    });
  }

  async #useToken(target: Target, register: string, token: string): Promise<void> {
    const start = performance.now();
    const outcome = await this.#query(target, token);
    if (typeof outcome === "string" || ![200, 401].includes(outcome.status)) return;
    this.#scene.history.read(register, outcome.replica, "good", outcome.status === 200, start);
  }

  /** Rotates the keys by the command line until it fails: then nobody knows which key signs. */
  async #rotateKeys(): Promise<void> {
    const { rig, history, random } = this.#scene;
    while (!this.#isOver) {
      await delay(random.between(500, 2500));
      const start = performance.now();
      const { code, stdout } = await rig.store.run(["key", "rotate"]);
      const kid = /signed by (\S+);/.exec(stdout)?.[1];
      if (code === 0 && kid !== undefined) history.wrote(KEYS, kid, start, performance.now());
      else {
        history.wrote(KEYS, unknownValue, start, Number.POSITIVE_INFINITY);
        return;
      }
    }
  }
}
