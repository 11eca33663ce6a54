-- Sends the same body with one token after the other. Arguments: file of tokens, file of the body,
-- and "close" for a connection for each request.
local requests = {}
local at = 0

function init(args)
  local file = io.open(args[2], "rb")
  local body = file:read("*a")
  file:close()
  for token in io.lines(args[1]) do
    local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. token }
    if args[3] == "close" then headers["Connection"] = "close" end
    requests[#requests + 1] = wrk.format("POST", "/query", headers, body)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"microseconds":%d,"refused":%d,"failed":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
