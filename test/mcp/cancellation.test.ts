import t from "tap";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { openAnswering } from "./kit.ts";
import { handshakeCall, statelessCall } from "./messages.ts";

const params = { name: "select", arguments: { database: "main", from: "t", columns: ["*"] } };

t.test("a client that goes away takes its query along", async (t) => {
  let asked = 0;
  let aborted = 0;
  const url = await openAnswering(t, (_principal, _query, { signal }) => {
    asked++;
    const { promise, reject } = Promise.withResolvers<never>();
    signal.addEventListener("abort", () => {
      aborted++;
      reject(new Error("gone"));
    });
    return promise;
  });
  for (const [at, call] of [
    statelessCall("tools/call", params),
    handshakeCall("tools/call", params),
  ].entries()) {
    const client = new AbortController();
    const { headers, body } = call;
    const answer = fetch(url, { method: "POST", headers, body, signal: client.signal });
    answer.catch(() => {});
    await eventually("the query is asked", () => asked === at + 1);
    client.abort();
    await eventually("the query is given up", () => aborted === at + 1);
  }
});

t.test("an error that nobody expected tells the model nothing of itself", async (t) => {
  const url = await openAnswering(t, () => Promise.reject(new Error("/secret/path")));
  const text = (await ask(url, statelessCall("tools/call", params))).body.toString();
  t.match(text, "internal_error");
  t.notMatch(text, "secret");
});

t.test("a stream of subscriptions, which could bring nothing, is over at once", async (t) => {
  const url = await openAnswering(t, () => Promise.reject(new Error("not asked")));
  const notifications = { toolsListChanged: true, resourcesListChanged: true };
  const stream = await ask(url, statelessCall("subscriptions/listen", { notifications }));
  t.match(stream.headers, { "content-type": "text/event-stream" });
  const [acknowledged, answer] = stream.body.toString().split("\n\n");
  t.match(acknowledged, /notifications\/subscriptions\/acknowledged","params":{"notifications":{}/);
  t.match(answer, /"id":1,"result":{"resultType":"complete"/);
});
