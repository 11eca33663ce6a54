import { type Agent, request } from "node:http";

interface TimedAnswer {
  readonly status: number;
  readonly text: string;
  readonly ms: number;
}

export async function post(
  url: string,
  body: string,
  { agent, token }: { agent?: Agent; token?: string } = {},
): Promise<TimedAnswer> {
  const start = performance.now();
  const { promise, resolve, reject } = Promise.withResolvers<TimedAnswer>();
  const headers: Record<string, string | number> = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
  };
  if (token !== undefined) headers.authorization = `Bearer ${token}`;
  const sent = request(url, { method: "POST", headers, ...(agent && { agent }) }, (answer) => {
    let text = "";
    answer.setEncoding("utf8").on("data", (piece: string) => (text += piece));
    answer.once("end", () =>
      resolve({ status: answer.statusCode ?? 0, text, ms: performance.now() - start }),
    );
    answer.once("error", reject);
  });
  sent.once("error", reject);
  sent.end(body);
  return promise;
}

/** @throws Error if the login fails */
export async function tokenOf(url: string, username: string, password: string): Promise<string> {
  const answer = await post(`${url}/login`, JSON.stringify({ username, password }));
  const { token }: { token?: string } = JSON.parse(answer.text);
  if (token === undefined) throw new Error(`no token: ${answer.text}`);
  return token;
}
