-- What is queued and due later, by queue: it is counted often, and must cost nothing for what is ready or waits.
CREATE INDEX runs_delayed ON runs (queue, due) WHERE ready = 0 AND status = 'queued';

-- Some of a dead worker's runs were taken from it; the rows of the others were locked.
ALTER TABLE workers ADD COLUMN partly_swept boolean NOT NULL DEFAULT false;
