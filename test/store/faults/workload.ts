import { setTimeout as delay } from "node:timers/promises";
import { decodePart } from "../../identity/forge.ts";
import { eventually } from "../../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../../kit/gateway.ts";
import { insert } from "../kit.ts";
import { type Clients, changeOf, type Outcome, type Target } from "./client.ts";
import { type History, UNKNOWN_VALUE } from "./history.ts";
import type { Random } from "./random.ts";
import type { Rig } from "./rig.ts";

const ROLES = ["ReadWrite", "ReadOnly"];
const KEYS = "signing key";
/** Between two requests of a client. */
const MIN_PAUSE_MS = 15;
const MAX_PAUSE_MS = 90;

interface Scene {
  readonly rig: Rig;
  readonly clients: Clients;
  readonly history: History;
  readonly random: Random;
}

/**
 * Concurrent clients that read and change grants, passwords, tokens and the signing key. Each
 * request goes to a random replica or to the load balancer.
 */
export class Workload {
  readonly #scene: Scene;
  readonly #admin: string;
  /** Distinguishes its users from those of other workloads. */
  readonly #prefix: string;
  readonly #tokens = new Map<string, string>();
  #password = 0;
  #isStopping = false;

  private constructor(scene: Scene, admin: string, prefix: string) {
    this.#scene = scene;
    this.#admin = admin;
    this.#prefix = prefix;
  }

  /** Creates users. Call it while nothing fails. */
  static async prepare(scene: Scene, prefix: string): Promise<Workload> {
    const [first] = scene.rig.replicas;
    if (first === undefined) throw new Error("no replica");
    const admin = await first.gateway.login("admin", ADMIN_PASSWORD);
    scene.history.open(KEYS, String(decodePart(admin, 0).kid));
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

  /** Resolves after `stop`, when the last request has ended. */
  async run(): Promise<void> {
    const { everywhere } = this.#scene.clients;
    await Promise.all([
      ...["grant-0", "grant-1"].map((name) => this.#repeat(() => this.#changeGrant(name), 4)),
      ...everywhere.map((target) => this.#repeat(() => this.#readGrant(target))),
      this.#repeat(() => this.#changePassword(), 4),
      ...everywhere.map((target) => this.#repeat(() => this.#tryPassword(target), 2)),
      ...["token-0", "token-1"].map((name) => this.#useTokens(name)),
      this.#rotateKeys(),
    ]);
  }

  stop(): void {
    this.#isStopping = true;
  }

  /** Reads everything at every replica. Call it after the last change. */
  async readAll(): Promise<void> {
    for (const target of this.#scene.clients.everywhere) {
      for (let round = 0; round < 4; round++) await this.#readGrant(target, round % 2);
      for (let back = 0; back < 4; back++) await this.#tryPassword(target, back);
    }
  }

  async #repeat(act: () => Promise<void>, pauses = 1): Promise<void> {
    const { random } = this.#scene;
    while (!this.#isStopping) {
      await act();
      await delay(pauses * random.between(MIN_PAUSE_MS, MAX_PAUSE_MS));
    }
  }

  /** Changes as the administrator and records the write. */
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

  async #readGrant(target: Target, which = Math.floor(this.#scene.random.between(0, 2))) {
    const { history } = this.#scene;
    const user = this.#user(`grant-${which}`);
    const start = performance.now();
    const outcome = await this.#query(target, this.#tokens.get(user) ?? "");
    if (typeof outcome === "string" || ![200, 403].includes(outcome.status)) return;
    history.read(user, outcome.replica, "ReadWrite", outcome.status === 200, start);
  }

  #query(target: Target, token: string): Promise<Outcome> {
    return this.#scene.clients.ask(target, {
      method: "POST",
      route: "/query",
      content: insert,
      token,
    });
  }

  async #changePassword(): Promise<void> {
    const user = this.#user("password");
    const value = String(++this.#password);
    const content = { new_password: `${user} ${value}` };
    await this.#change([user], value, {
      method: "PUT",
      route: `/api/users/${user}/password`,
      content,
    });
  }

  /** Logs in with one of the last passwords. */
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
      history.read(
        KEYS,
        outcome.replica,
        String(decodePart(String(outcome.body.token), 0).kid),
        true,
        start,
      );
    }
    return outcome;
  }

  /** Logs in, queries, and ends the token or all tokens of the user. */
  async #useTokens(name: string): Promise<void> {
    const { clients, history, random } = this.#scene;
    const user = this.#user(name);
    /** Starts of revocations with an unknown outcome, which may still take effect. */
    const pendingEnds: number[] = [];
    let count = 0;
    await this.#repeat(async () => {
      const answer = await this.#logIn(clients.anywhere, user, `${user} 0`);
      if (typeof answer === "string" || answer.status !== 200) return;
      const token = String(answer.body.token);
      const register = `${user} token ${count++}`;
      history.open(register, "good");
      for (const start of pendingEnds)
        history.wrote(register, "ended", start, Number.POSITIVE_INFINITY);
      for (let uses = 0; uses < 3; uses++) await this.#useToken(clients.anywhere, register, token);
      const isAll = random.next() < 0.5;
      const start = performance.now();
      const outcome = isAll
        ? await this.#change([register], "ended", {
            method: "DELETE",
            route: `/api/users/${user}/tokens`,
          })
        : await this.#change([register], "ended", { method: "POST", route: "/logout", token });
      if (isAll && outcome === "unknown") pendingEnds.push(start);
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

  /** Rotates the keys until the command fails. After that, the signing key is unknown. */
  async #rotateKeys(): Promise<void> {
    const { rig, history, random } = this.#scene;
    while (!this.#isStopping) {
      await delay(random.between(500, 2500));
      const start = performance.now();
      const { code, stdout } = await rig.store.run(["key", "rotate"]);
      const kid = /signed by (\S+);/.exec(stdout)?.[1];
      if (code === 0 && kid !== undefined) history.wrote(KEYS, kid, start, performance.now());
      else {
        history.wrote(KEYS, UNKNOWN_VALUE, start, Number.POSITIVE_INFINITY);
        return;
      }
    }
  }
}
