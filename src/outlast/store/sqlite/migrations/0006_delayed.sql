-- What is queued and due later, by queue: it is counted often, and must cost nothing for what is ready or waits. All columns of the
-- count are in it, else SQLite would look at each row.
CREATE INDEX runs_delayed ON runs (queue, status, ready, due) WHERE ready = 0 AND status = 'queued';
