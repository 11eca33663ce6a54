/** Requests to replicas, directly and by their front, and what is known of them afterwards. */
import type { Random } from "./random.ts";
import type { Rig } from "./rig.ts";

/** Milliseconds after which a client gives up a change, which may wait for a lease. */
const CHANGE_MS = 8500;
/** The same of a look. */
const LOOK_MS = 3000;

/** Where requests go. */
export interface Target {
  readonly url: string;
  /** The replica there; undefined for the front. */
  readonly replica: string | undefined;
}

/** An answer, and whose it is. */
export interface Reply {
  readonly status: number;
  readonly code: string;
  readonly body: Record<string, unknown>;
  readonly replica: string;
}

/** A request that nobody took. */
export type Outcome = Reply | "refused" | "unknown";

interface Request {
  readonly method: string;
  readonly route: string;
  readonly content?: object;
  readonly token?: string;
  /** True if it changes what is shared. */
  readonly isChange?: boolean;
}

/** Codes that say that a change may have been made. */
const uncertain = ["store_uncertain", "internal_error"];

/** Whether an answer to a change says that it is in force, was not made, or neither. */
export function changeOf(outcome: Outcome): "made" | "refused" | "unknown" {
  if (typeof outcome === "string") return outcome;
  if (outcome.status < 300) return "made";
  // 502 and 504 are the front's, of a replica that it lost on the way.
  const isUnknown = uncertain.includes(outcome.code) || [502, 504].includes(outcome.status);
  return isUnknown ? "unknown" : "refused";
}

function isRefusal(error: unknown): boolean {
  return error instanceof Error && /ECONNREFUSED/.test(String(error.cause));
}

/** Clients of a rig; they count what they were answered. */
export class Clients {
  readonly #targets: readonly Target[];
  readonly #random: Random;
  /** How often each status with its code was answered. */
  readonly answers: Map<string, number> = new Map();

  constructor({ replicas, front }: Rig, random: Random) {
    const direct = replicas.map(({ gateway, name }) => ({ url: gateway.url, replica: name }));
    this.#targets = [
      ...direct,
      ...(front === undefined ? [] : [{ url: front, replica: undefined }]),
    ];
    this.#random = random;
  }

  /** One of the replicas, or the front. */
  get anywhere(): Target {
    return this.#random.of(this.#targets);
  }

  get everywhere(): readonly Target[] {
    return this.#targets;
  }

  async ask(target: Target, request: Request): Promise<Outcome> {
    const { method, route, content, token, isChange = false } = request;
    const headers: Record<string, string> = {};
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    if (content !== undefined) headers["content-type"] = "application/json";
    const init = { method, headers, signal: AbortSignal.timeout(isChange ? CHANGE_MS : LOOK_MS) };
    const body = content === undefined ? {} : { body: JSON.stringify(content) };
    try {
      const response = await fetch(`${target.url}${route}`, { ...init, ...body });
      const text = await response.text();
      const replica = target.replica ?? response.headers.get("x-replica") ?? "front";
      const reply = { status: response.status, replica, ...parsed(text) };
      this.#count(`${reply.status} ${reply.code}`);
      return reply;
    } catch (error) {
      const outcome = isRefusal(error) ? "refused" : "unknown";
      this.#count(outcome);
      return outcome;
    }
  }

  #count(answer: string): void {
    this.answers.set(answer, (this.answers.get(answer) ?? 0) + 1);
  }
}

function parsed(text: string): Pick<Reply, "code" | "body"> {
  try {
    const body: Record<string, unknown> = JSON.parse(text);
    return { body, code: String(body.code ?? "") };
  } catch {
    return { body: {}, code: "" };
  }
}
