/**
 * Makes rounds of parallel calls with an expired access token: `node parallel.js <library>`. Reads
 * the URL, the client and its tokens as JSON, and prints the results as JSON.
 */
import { json } from "node:stream/consumers";
import { connect } from "./connect.js";
import { Provider } from "./provider.js";

const AT_ONCE = 8;
const ROUNDS = 3;

const { url, ...held } = await json(process.stdin);
const provider = new Provider(held);
const { ask, close } = await connect[process.argv[2]](url, provider);
const failures = [];
let answered = 0;
for (let round = 0; round < ROUNDS; round++) {
  provider.expire();
  for (const { reason, value } of await Promise.allSettled(Array.from({ length: AT_ONCE }, ask))) {
    if (reason !== undefined) failures.push(String(reason));
    else if (JSON.stringify(value).includes("Alice")) answered++;
    else failures.push(JSON.stringify(value));
  }
}
await close();
const { refreshes, hasAsked } = provider;
const outcome = { asked: AT_ONCE * ROUNDS, answered, failures, refreshes, hasAsked };
process.stdout.write(`${JSON.stringify(outcome)}\n`);
